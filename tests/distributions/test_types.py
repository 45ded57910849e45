"""A user's project under `mypy --strict` sees the names and types of options; none of our types is Any to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from penstock.options import ChangedOptions, ClientOptions

ROOT = Path(__file__).parents[2]

# An expected error is a line that ends in `# E: ` and mypy's error code.
PROGRAM = """
import asyncio

import penstock
from penstock import Client, ClientOptions, Delivery, Record, RecordPosition
from penstock import sync


async def main() -> None:
    async with Client("http://127.0.0.1:8080", options=ClientOptions(linger_ms=1, acks="1")) as client:
        async with client.producer(linger_ms=0, compression="zstd", partitioner="sticky") as producer:
            delivery: Delivery = await producer.send("t", {"a": 1}, key="k", headers={"h": b"1"})
            position: RecordPosition = await delivery
            reveal_type(position.offset)  # N: int | None
        client.producer(linger=0)  # E: call-arg
        client.producer(linger_ms="0")  # E: arg-type
        client.producer(compression="brotli")  # E: arg-type
        client.producer(partitioner="hash")  # E: arg-type
        async for record in client.consume("t", start="latest", fetch_wait_ms=100, verify_crc=True):
            reveal_type(record)  # N: penstock.records.Record
        client.consume("t", fetch_wait=100)  # E: call-arg
        client.consume("t", out_of_range="skip")  # E: arg-type
        await client.post_records("t", b"1", partition=0, idempotency_key="k")
        await client.post_records("t", b"1", partitions=0)  # E: call-arg
    ClientOptions(acks="2")  # E: arg-type
    penstock.Clients  # E: attr-defined


with sync.Client() as client:
    with client.producer(batch_bytes=1024, value_serializer="json") as producer:
        reveal_type(producer.send("t", 1).result())  # N: RecordPosition
    client.producer(batch_size=1024)  # E: call-arg
    client.producer(acks=1)  # E: arg-type
    client.post_records("t", b"1", "text/plain", partition=0)
    client.post_records("t", b"1", part=0)  # E: call-arg
    records: list[Record] = client.consume("t", follow=False, prefetch_batches=3).poll(timeout_ms=10)
    client.consume("t", prefetch=3)  # E: call-arg
asyncio.run(main())
"""


def test_what_may_be_changed_is_what_a_client_has() -> None:
    assert get_type_hints(ChangedOptions) == get_type_hints(ClientOptions)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_right_calls_pass_and_wrong_calls_are_found(tmp_path: Path) -> None:
    file = tmp_path / "project.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", str(file)]
    ran = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), "--no-error-summary"],
        env={**os.environ, "MYPYPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    lines = PROGRAM.splitlines()
    wanted = {(number, line.split("# E: ")[1]) for number, line in enumerate(lines, 1) if "# E: " in line}
    errors = re.findall(r":(\d+): error: .*\[([a-z-]+)\]$", ran.stdout, re.MULTILINE)
    assert {(int(line), code) for line, code in errors} == wanted, ran.stdout
    for number, line in enumerate(lines, 1):
        if "# N: " in line:
            (shown,) = re.findall(rf":{number}: note: Revealed type is (.*)", ran.stdout)
            assert line.split("# N: ")[1] in shown
