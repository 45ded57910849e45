"""A shard that opens many partitions in slices keeps the recovery points of all of them meanwhile."""

import asyncio
import dataclasses
import errno
import itertools
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.directory.log_directories import open_data_directories
from engine.errors import StorageFull
from engine.format.batch import encode_values
from engine.runtime.disk import RealDisk
from engine.runtime.pooled_disk import PooledDisk
from engine.shard.opening import PARALLEL_OPENINGS
from engine.shard.shard import Shard, ShardEvents
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock, running_node
from tests.engine.data_directory_lives import append, ends

COUNT = 250
GIVEN_UP = 4


@asynccontextmanager
async def started(path, records, on_opened=lambda *_: None):
    disk, ids = PooledDisk(RealDisk(), 64), (f"id{n}" for n in itertools.count())
    with ThreadPoolExecutor(2) as executor:
        how = {"node_id": 1, "cluster_id": None, "boot_id": "boot", "new_id": ids.__next__}
        directories = open_data_directories(disk, [str(path)], **how)
        events = ShardEvents(opened=lambda shard, _, partition: on_opened(shard, partition))
        shard = Shard(disk, directories.first, HandClock(), executor, ids.__next__, events=events)
        await shard.start(records)
        yield shard
        await shard.stop()


@pytest.mark.parametrize("is_standalone", [False, True])
async def test_points_that_are_saved_while_partitions_are_taken_in_are_those_of_all(tmp_path, is_standalone):
    home, killed = tmp_path / "node", tmp_path / "killed"
    async with running_node(home, HandClock()) as node:
        await node.shard.create_topic("t", COUNT, 1, {})
        leader = node.leaders["t", COUNT - 1]
        for _ in range(2):
            await leader.produce(encode_values([b"x"] * 5, 5), Acks.ALL, 1000)
        await node.shard.delete_before(node.shard.partition("t", COUNT - 1), GIVEN_UP)
        record = node.shard.catalog.records["t"]
    records = [record if is_standalone else dataclasses.replace(record, hosted=tuple(range(COUNT)))]
    following = []

    def opened(shard, partition):
        if partition.number == 0:
            following.append(asyncio.ensure_future(shard.log_manager.save_points(partition)))

    async with started(home, records, opened):
        await asyncio.gather(*following)
        shutil.copytree(home, killed)
    points = (killed / "recovery-points").read_text()
    assert sum("/" in line for line in points.splitlines()) == COUNT
    async with started(killed, records) as shard:
        assert shard.partition("t", COUNT - 1).log.log_start == GIVEN_UP


async def test_a_cancelled_opening_ends_with_the_partitions_that_it_has_begun(tmp_path):
    may_go_on, is_opening, opened = threading.Event(), threading.Event(), []

    def wait(path: str) -> None:
        if Path(path).parent.parent.name == "t":  # a partition
            opened.append(path)
            is_opening.set()
            may_go_on.wait(60)

    disk = FaultyDisk(RealDisk(), [Rule("listdir", times=None, act=wait)])
    async with running_node(tmp_path, HandClock(), disk) as node:
        creating = asyncio.ensure_future(node.shard.create_topic("t", COUNT, 1, {}))
        while not is_opening.is_set():
            await asyncio.sleep(0.001)
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        may_go_on.set()
    assert len(set(opened)) <= PARALLEL_OPENINGS


async def test_the_first_append_makes_the_file_and_a_full_disk_refuses_it_whole(tmp_path):
    disk = FaultyDisk(RealDisk())
    async with running_node(tmp_path, HandClock(), disk) as node:
        await node.shard.create_topic("t", 2, 1, {})
        assert list(tmp_path.rglob("topics/t/**/*.log")) == []
        disk.rules.append(Rule("open", ".log", error=errno.ENOSPC))
        with pytest.raises(StorageFull):
            await append(node)
        assert [one.offline for one in node.shard.partitions()] == [None, None]
        await append(node)
        assert len(list(tmp_path.rglob("topics/t/**/*.log"))) == 2
    async with running_node(tmp_path, HandClock(), RealDisk()) as node:
        assert ends(node) == {0: 1, 1: 1}
