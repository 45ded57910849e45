"""Real system calls that fail or stall, injected by strace into a running node.

strace attaches to the node once it serves, and affects the fdatasync of one partition's file only, so the rest of the
node has a healthy disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import pytest

from tests import disk_faults
from tests.e2e.load import create
from tests.e2e.node_process import NodeProcess, running_process

pytestmark = pytest.mark.e2e


@contextmanager
def injected(node: NodeProcess, file: Path, injection: str, output: Path, pids: Sequence[int] = ()) -> Iterator[None]:
    """Inject a fault into fdatasync of one file, in the node or in some processes. Skips the test without strace."""
    with ExitStack() as stack:
        options = ("-o", str(output), "-P", str(file))
        try:
            stack.enter_context(disk_faults.injected(pids or [node.pid], injection, "fdatasync", options))
        except disk_faults.CannotAttach as error:
            pytest.skip(str(error))
        yield


async def produce(session: aiohttp.ClientSession, url: str, partition: int, acks: str = "all") -> tuple[int, dict]:
    target = f"{url}/v1/topics/t/partitions/{partition}/records?acks={acks}"
    async with session.post(target, json={"records": [{"value": partition}]}) as answer:
        return answer.status, await answer.json()


async def values(session: aiohttp.ClientSession, url: str, partition: int) -> list[object]:
    async with session.get(f"{url}/v1/topics/t/partitions/{partition}/records?offset=0") as answer:
        return [record["value"] for record in (await answer.json())["records"]]


def log_file(directory: Path, partition: int) -> Path:
    (found,) = (directory / "data" / "topics" / "t").glob(f"*/{partition}/*.log")
    return found


async def test_a_failed_fsync_takes_its_partition_offline_until_a_restart(tmp_path):
    async with aiohttp.ClientSession() as session:
        with running_process(tmp_path) as node:
            await create(node.url, "t", 2)
            for partition in (0, 1):
                assert (await produce(session, node.url, partition))[0] == 200
            with injected(node, log_file(tmp_path, 0), "error=EIO", tmp_path / "strace"):
                status, problem = await produce(session, node.url, 0)
                assert (status, problem["code"], problem["no_side_effects"]) == (503, "storage_failed", False)
                assert (await produce(session, node.url, 1))[0] == 200
            for acks in ("all", "1"):
                status, problem = await produce(session, node.url, 0, acks)
                assert (status, problem["code"]) == (503, "storage_failed"), "though the disk is well again"
            assert (await produce(session, node.url, 1))[0] == 200
            assert (tmp_path / "strace").read_text().count("INJECTED") == 1, "a failed fsync must not be repeated"
            assert "partition is offline" in node.errors
            node.kill()
        with running_process(tmp_path) as node:
            assert len(await values(session, node.url, 0)) >= 1
            assert len(await values(session, node.url, 1)) == 3
            assert (await produce(session, node.url, 0))[0] == 200


async def test_a_stalled_fsync_stalls_its_acknowledgement_and_nothing_else(tmp_path):
    stall_s = 90.0  # or until the injection ends
    async with aiohttp.ClientSession() as session:
        with running_process(tmp_path) as node:
            await create(node.url, "t", 1)
            assert (await produce(session, node.url, 0))[0] == 200
            delay = f"delay_enter={int(stall_s * 1e6)}:when=1"
            with injected(node, log_file(tmp_path, 0), delay, tmp_path / "strace"):
                stalled = asyncio.ensure_future(produce(session, node.url, 0))
                await asyncio.sleep(0.1)
                for _ in range(5):
                    sent_at = time.monotonic()
                    assert await values(session, node.url, 0) == [0]
                    assert time.monotonic() - sent_at < stall_s / 2
                assert not stalled.done()
            assert (await stalled)[0] == 200
