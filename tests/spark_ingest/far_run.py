"""Runs of ingestion without new records on an S3 store whose answers take 20 ms more, for `make bench-ingest ARGS=far`.

    python -m tests.spark_ingest.far_run STORE TOPIC ROUNDS

ministack serves a copy of the store, behind a proxy on the loopback that holds back each request. Prints the time and
the requests of the first run, which ingests everything, and of the others.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.tiering.store.store import open_store
from tests.engine.tiering.servers import CREDENTIALS, make_bucket, ministack
from tests.faults.proxy import FaultProxy, Link
from tests.faults.rules import NO_FAULTS, Dice, Fate, Fault

DELAY_S = 0.02
COMMAND = str(Path(sys.executable).with_name("penstock"))


class _Late(Dice):
    """Delays each request by the same time."""

    def fate(self) -> Fate:
        return Fate(Fault.DELAY, DELAY_S, 0.0, 0.0, is_reset=False)


@contextmanager
def far(port: int) -> Iterator[Link]:
    """Runs the proxy in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    link = Link(FaultProxy(port), _Late(NO_FAULTS, 0))
    try:
        asyncio.run_coroutine_threadsafe(link.open(), loop).result()
        yield link
        asyncio.run_coroutine_threadsafe(link.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def main(store: str, topic: str, rounds: int) -> None:
    os.environ.update(CREDENTIALS)
    with tempfile.TemporaryDirectory() as place, ministack(Path(place)) as endpoint:
        for bucket in ("store", "output"):
            make_bucket(endpoint, bucket)
        here = open_store(Path(store).as_uri())
        there = open_store(f"s3://store/p?endpoint={endpoint}")
        for one in here.list(""):
            if f"/{topic}/" in one.key:
                there.put(one.key, here.get(one.key))
        with far(int(endpoint.rpartition(":")[2])) as link:
            places = ("--store", f"s3://store/p?endpoint={link.url}", "--output", f"s3://output/p?endpoint={link.url}")
            for at in range(rounds + 1):
                before, started = link.happened.total(), time.monotonic()
                command = [COMMAND, "ingest", "run", *places, "--topics", topic, "--engine", "local", "--workers", "1"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                seconds, requests = time.monotonic() - started, link.happened.total() - before
                assert done.returncode == 0, done.stdout + done.stderr
                print(f"round {at}: {seconds:.2f} s, {requests} requests", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
