"""Nodes over several data directories, one life after another, for the tests of them."""

import itertools
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine.directory.log_directories import LogDirectories, open_data_directories
from engine.format import batch
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock, running_node

PARTITIONS = 4


class Lives:
    """Successive lives of a node with its data in `a`, `b` and perhaps `c`."""

    def __init__(self, path: Path, clock: HandClock) -> None:
        self.path = path
        self.clock = clock
        self.ids: Iterator[str] = (f"id{n}" for n in itertools.count())
        self.disk: FaultyDisk | None = None

    @asynccontextmanager
    async def life(self, *names: str, rules: tuple[Rule, ...] = ()):
        self.disk = FaultyDisk(RealDisk(), rules)
        first, *further = [self.path / name for name in names or ("a", "b")]
        async with running_node(first, self.clock, self.disk, further, self.ids) as node:
            yield node

    def opened(self, *names: str) -> LogDirectories:
        """Open the directories for a test that composes its own node."""
        data_dirs = [str(self.path / name) for name in names]
        return open_data_directories(
            RealDisk(), data_dirs, node_id=1, cluster_id=None, boot_id="boot", new_id=self.ids.__next__
        )

    def of(self, node, name: str, topic: str = "t") -> list[int]:
        """Return the partitions in a directory."""
        home = str(self.path / name) + "/"
        return [n for n, one in node.shard.topics[topic].partitions.items() if one.log.directory.startswith(home)]

    def home(self, name: str) -> Path:
        """Return the directory of topic t in a data directory."""
        (found,) = (self.path / name / "topics" / "t").iterdir()
        return found


async def make(node, topic: str = "t", partitions: int = PARTITIONS) -> None:
    await node.shard.create_topic(topic, partitions, 1, {})
    await append(node, topic)


async def append(node, topic: str = "t") -> None:
    """Append a record to each partition, with acks=all."""
    for number, partition in node.shard.topics[topic].partitions.items():
        if partition.offline is None:
            await node.leaders[topic, number].produce(batch.encode_values([b"%d" % number], 5), Acks.ALL, 5000)


def ends(node, topic: str = "t") -> dict[int, int | None]:
    """Return the log end of each partition, None for one that is offline."""
    partitions = node.shard.topics[topic].partitions
    return {n: None if one.offline else one.log_end for n, one in sorted(partitions.items())}
