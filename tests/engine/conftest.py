"""What engine tests share: a clock to turn by hand, a shard in a temporary directory."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.directory.log_directories import open_data_directories
from engine.runtime.disk import Disk, RealDisk
from engine.runtime.pooled_disk import PooledDisk
from engine.shard.shard import Shard
from replication.replica.replica import Replica
from replication.replica.standalone import led_alone

IMAGE_BYTES = 24 * 1024 * 1024


class HandClock:
    """Time that moves only when a test says so."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self.seconds = 1000.0
        self._began_ms = self.ms - 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.seconds

    def steady_ms(self) -> int:
        return self._began_ms + round(self.seconds * 1000)

    def restart(self) -> None:
        """A new process: its steady time begins at the wall time of now."""
        self._began_ms = self.ms - round(self.seconds * 1000)

    def pass_ms(self, ms: int) -> None:
        self.ms += ms
        self.seconds += ms / 1000


class Node:
    """A shard with leaders, as the gateway composes them, without HTTP."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.leaders: dict[tuple[str, int], Replica] = {}
        shard.when_opened = lambda topic, partition: self.leaders.__setitem__(
            (partition.topic, partition.number), led_alone(partition, shard.committer, 1)
        )


@asynccontextmanager
async def running_node(
    path: Path,
    clock: HandClock,
    disk: Disk | None = None,
    further: Sequence[Path] = (),
    ids: Iterator[str] | None = None,
) -> AsyncIterator[Node]:
    ids = ids or (f"id{n}" for n in itertools.count())
    disk = disk or PooledDisk(RealDisk(), 64)
    with ThreadPoolExecutor(2) as executor:
        directories = open_data_directories(
            disk,
            [str(one) for one in (path, *further)],
            node_id=1,
            cluster_id=None,
            boot_id="boot",
            new_id=ids.__next__,
        )
        shard = Shard(disk, directories.first, clock, executor, ids.__next__, further=directories.further)
        node = Node(shard)
        try:
            await shard.start()
        except BaseException:
            directories.release()
            raise
        try:
            yield node
        finally:
            await shard.stop()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def new_node(tmp_path: Path, clock: HandClock) -> Callable[..., object]:
    return lambda: running_node(tmp_path / "data", clock)


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of 24 MiB, unmounted again whatever happens."""
    image, mounted = tmp_path / "image", tmp_path / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True, capture_output=True, timeout=30)
        subprocess.run(["mount", "-o", "loop", image, mounted], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no loop mount here (root and loop devices are needed): {error}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "-l", mounted], check=True, timeout=30)
