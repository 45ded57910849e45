"""A file system of 24 MB for one node, and what keeps it full: before each operation the last free byte is taken."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import disk_faults
from tests.scenarios.gateways import Answer, Gateway, Topic

SIZE_MIB = 24
MAKERS = {"ext4": disk_faults.make_ext4, "tmpfs": disk_faults.make_tmpfs}
VALUE = b"v" * 200_000
CONFIG = {"segment_bytes": 1 << 20, "batch_bytes_max": 1 << 20}
WAIT_S = 60.0


class SmallDisk:
    """The mounted file system. `filler` is a file of another program."""

    def __init__(self, mounted: Path) -> None:
        self.mounted = mounted
        self.data = mounted / "data"
        self.filler = mounted / "filler"

    def fill(self) -> None:
        """Take every free byte, also those that the node has freed since."""
        with self.filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError:
                    continue
        assert os.statvfs(self.mounted).f_bavail == 0

    def make_room(self) -> None:
        self.filler.unlink(missing_ok=True)


@contextmanager
def small_disk(directory: Path, kind: str) -> Iterator[SmallDisk]:
    """Mount one. Skips the test where nothing can be mounted."""
    try:
        with disk_faults.small_file_system(directory / "small", SIZE_MIB, MAKERS[kind]) as mounted:
            yield SmallDisk(mounted)
    except disk_faults.CannotMount as error:
        pytest.skip(str(error))


async def produce(topic: Topic, count: int) -> None:
    """Produce records; five of them fill a segment."""
    for _ in range(count):
        answer = await topic.post(VALUE, "application/octet-stream")
        assert answer.status == 200, answer.body


async def until_status(gateway: Gateway, status: int, *request: str, body: bytes = b"", **query: object) -> Answer:
    """Repeat a request until it has this answer: a node looks at its disk once a second."""
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while True:
        answer = await gateway.send(*request, body, {"Content-Type": "application/json"} if body else {}, **query)
        if answer.status == status or asyncio.get_running_loop().time() > deadline:
            assert answer.status == status, answer.body
            return answer
        await asyncio.sleep(0.2)


async def until_positions(topic: Topic, **expected: int) -> None:
    """Wait until a partition's positions are at least these."""
    deadline = asyncio.get_running_loop().time() + WAIT_S
    found = await topic.positions()
    while any(found[name] < value for name, value in expected.items()):
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.2)
        found = await topic.positions()
