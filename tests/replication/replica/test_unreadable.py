"""A leader that cannot read its disk gives up the leadership, and is repaired from the replica that leads then."""

import errno
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.cleaning.segment_check import examine, sealed_file
from engine.errors import Corrupt, EngineError
from engine.format.checksum import at_once
from engine.partition.partition import Partition
from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from replication.replica import unreadable
from tests.replication.hosts import HostedNode, Hosts, hosts
from tests.waiting import until

WHOLE = 1 << 20


@pytest.fixture
async def cluster(tmp_path, monkeypatch) -> AsyncIterator[Hosts]:
    """Three nodes. Node 1 leads a partition with three sealed segments."""
    monkeypatch.setattr(unreadable, "REPAIR_PAUSE_S", 0.01)
    async with hosts(tmp_path, nodes=0) as made:
        for node_id in (1, 2, 3):
            await made.start(node_id, FaultyDisk(RealDisk()))
        await made.create_topic()
        made.elect(1)
        await until(lambda: made[1].replica().core is not None)
        for segment in range(3):
            for value in range(4):
                await made[1].produce(b"%d.%d" % (segment, value))
            await made[1].shard.roll_topic("t")
        await until(lambda: all(made[node].partition().log_end == 12 for node in (2, 3)))
        await until(lambda: all(len(made[node].partition().log.segments) >= 3 for node in (2, 3)))
        yield made


def bad_sector(node: HostedNode, times: int | None = None) -> None:
    assert isinstance(node.disk, FaultyDisk)
    for operation in ("pread", "pread_nowait"):
        node.disk.rules.append(Rule(operation, "00000000000000000004.log", times=times, error=errno.EIO))


def damage(partition: Partition) -> None:
    path = Path(partition.log.segments[1].path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


async def read(node: HostedNode) -> None:
    with pytest.raises((EngineError, Corrupt)):
        await node.shard.reader.read(node.partition(), 7, WHOLE)


@pytest.mark.parametrize("fault", ["damaged bytes", "read error"])
async def test_leadership_moves_and_the_segment_is_repaired_from_the_new_leader(cluster, fault):
    """Before, the leader went on, and every fetch failed although two followers had the records."""
    one = cluster[1]
    before = one.values()
    if fault == "damaged bytes":
        damage(one.partition())
    else:
        bad_sector(one)
    await read(one)
    await until(lambda: one.offline == [(cluster.topic_id, 0)])
    assert one.replica().core is None
    cluster.elect(2, (2, 3))
    assert one.online == []
    await until(lambda: cluster[2].replica().core is not None)
    await cluster[2].produce(b"meanwhile")  # acks=all does not wait for the repair
    if isinstance(one.disk, FaultyDisk):
        one.disk.rules.clear()  # the repair writes other sectors, under the same name
    await until(lambda: one.online == [(cluster.topic_id, 0)])
    await until(lambda: one.partition().log_end == 13)
    assert one.values() == [*before, b"meanwhile"]
    assert one.stored_bytes() == cluster[2].stored_bytes()
    assert one.host.unreadable.repaired == 1
    assert not any(segment.damage for segment in one.partition().log.segments)


async def scrub(node: HostedNode) -> None:
    quarantine = node.shard.quarantine
    segment = node.partition().log.segments[1]
    await quarantine.record(node.partition(), found := sealed_file(segment), examine(node.disk, found, at_once))


@pytest.mark.parametrize("found", ["by the scrubber", "before a restart"])
async def test_damage_of_a_follower_is_repaired_from_its_leader(cluster, found, monkeypatch):
    """Before, it stayed until the follower led and a reader met it."""
    if found == "before a restart":
        monkeypatch.setattr(unreadable, "REPAIR_PAUSE_S", 1000.0)  # no repair in the first life
    damage(cluster[2].partition())
    await scrub(cluster[2])
    if found == "before a restart":
        monkeypatch.setattr(unreadable, "REPAIR_PAUSE_S", 0.01)
        await cluster.restart(2)
    await until(lambda: cluster[2].host.unreadable.repaired == 1)
    await until(lambda: not any(segment.damage for segment in cluster[2].partition().log.segments))
    await cluster[1].produce(b"later")  # acks=all: the position of the follower at its leader is its log's end again
    await until(lambda: cluster[2].stored_bytes() == cluster[1].stored_bytes())
    assert cluster[2].offline == []


async def test_a_copy_that_cannot_be_written_leaves_no_file(cluster, caplog):
    disk, directory = cluster[2].disk, Path(cluster[2].partition().log.directory)
    assert isinstance(disk, FaultyDisk)
    disk.rules.append(Rule("fdatasync", ".repaired.tmp", error=errno.ENOSPC))
    damage(cluster[2].partition())
    await scrub(cluster[2])
    await until(lambda: "a damaged segment is not repaired from the leader yet" in caplog.text)
    assert list(directory.glob("*.tmp")) == []


async def test_a_read_error_that_does_not_come_again_moves_nothing(cluster):
    bad_sector(cluster[1], 1)
    await read(cluster[1])
    await until(lambda: not cluster[1].host.unreadable._examined)
    assert cluster[1].offline == []
    assert cluster[1].replica().core is not None


async def test_a_leader_that_nobody_can_replace_stays(cluster):
    cluster.leave_out(2)
    cluster.leave_out(3)
    damage(cluster[1].partition())
    await read(cluster[1])
    assert cluster[1].offline == []
    assert await cluster[1].shard.reader.read(cluster[1].partition(), 0, 1) is not None, "other segments are read"


async def test_bad_disks_of_two_nodes_do_not_pass_the_leadership_to_and_fro(cluster, caplog, monkeypatch):
    monkeypatch.setattr(unreadable, "REPAIR_PAUSE_S", 1000.0)  # no repair in this test
    caplog.set_level(logging.ERROR)
    one = cluster[1]
    damage(one.partition())
    await read(one)
    await until(lambda: one.offline)
    cluster.elect(2, (2, 3))
    cluster.elect(1, (1, 2, 3))
    await until(lambda: one.replica().core is not None)
    one.host.unreadable._examined.clear()
    await read(one)
    await until(lambda: not one.host.unreadable._examined)
    assert len(one.offline) == 1
    assert one.replica().core is not None
