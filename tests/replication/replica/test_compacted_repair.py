"""A damaged segment of a compacted topic takes its leader's records, although each replica compacts for itself."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from engine.cleaning.segment_check import examine, sealed_file
from engine.compaction.compactor import Compactor
from engine.compaction.progress import load_progress
from engine.compaction.swapping import OwnPartition
from engine.format import batch as record_batch
from engine.format.checksum import at_once
from engine.runtime.throttled_thread import ThrottledThread
from replication.replica import unreadable
from replication.replica.acks import Acks
from tests.engine.compaction.table import fold
from tests.replication.hosts import HostedNode, Hosts, hosts
from tests.waiting import until

PAD = b"x" * 15_000  # the segments are too large to be merged in the first round
SEGMENTS: list[list[tuple[bytes, bytes | None]]] = [
    [(b"b", b"1" + PAD), (b"c", b"1" + PAD), (b"a", b"1" + PAD), (b"a", b"2" + PAD)],
    [(b"a", b"3" + PAD), (b"k", b"1" + PAD), (b"d", b"1" + PAD), (b"e", b"1" + PAD)],
    [(b"g", b"1" + PAD), (b"a", b"4"), (b"d", None), (b"e", b"2"), (b"g", b"2")],
]
EXPECTED = fold(itertools.chain(*SEGMENTS))


@pytest.fixture
async def cluster(tmp_path, monkeypatch) -> AsyncIterator[Hosts]:
    """Two nodes. Node 1 leads a compacted partition with three sealed segments that no replica has compacted."""
    monkeypatch.setattr(unreadable, "REPAIR_PAUSE_S", 0.01)
    async with hosts(tmp_path, nodes=2) as made:
        settings = {"segment_bytes": 65536, "min_cleanable_dirty_percent": 1, "delete_retention_ms": 0}
        await made.create_topic(cleanup_policy="compact", **settings)
        made.elect(1)
        await until(lambda: made[1].replica().core is not None)
        for segment in SEGMENTS:
            for key, value in segment:
                await send(made[1], key, value)
            await made[1].shard.roll_topic("t")
        await send(made[1], b"last", PAD[:1000])
        await until(lambda: [one.base_offset for one in made[2].partition().log.segments] == [0, 4, 8, 13])
        await until(lambda: made[2].partition().high_watermark == 14)
        yield made


async def send(node: HostedNode, key: bytes, value: bytes | None) -> None:
    await node.replica().produce(record_batch.encode([(5, key, value, [])]), Acks.ALL, 10_000)


async def compact(node: HostedNode) -> None:
    await node.shard.sealer.wait_saved(node.partition())
    own = OwnPartition(node.partition(), node.shard.segment_swapper)
    thread = ThrottledThread("compact", 1 << 60)
    options = {"memory_bytes": 1 << 20, "check_ms": 1000, "random_bytes": Random(1).randbytes}
    compactor = Compactor(node.disk, lambda: [own], thread, **options)
    while await compactor.compact(own):
        pass
    await compactor.stop()
    node.replica().tick()  # a leader learns here how far its own log is compacted


async def damage(node: HostedNode, number: int) -> None:
    """Change a byte in each batch of a segment, and have it found."""
    segment = node.partition().log.segments[number]
    data = bytearray(Path(segment.path).read_bytes())
    for position, header in list(record_batch.walk(data)):
        data[position + header.size_bytes - 1] ^= 1
    Path(segment.path).write_bytes(data)
    found = sealed_file(segment)
    assert await node.shard.quarantine.record(node.partition(), found, examine(node.disk, found, at_once))


async def repaired(cluster: Hosts) -> None:
    await until(lambda: cluster[2].host.unreadable.repaired == 1)
    await until(lambda: not any(one.damage for one in cluster[2].partition().log.segments))


def table(node: HostedNode) -> dict[bytes, bytes]:
    found = fold((one.key or b"", one.value) for one in node.records())
    found.pop(b"last")
    return found


def segment_of(node: HostedNode, offset: int) -> list[tuple[int, int, int]]:
    """Return the batches of a segment: first offset, next offset and records."""
    data = Path(node.partition().log.segment_of(offset).path).read_bytes()
    return [(one.base_offset, one.next_offset, one.record_count) for _, one in record_batch.walk(data)]


async def test_a_segment_is_repaired_from_a_leader_that_has_compacted_more(cluster):
    """The leader has one empty batch where this replica has the end of a segment and the begin of another."""
    await compact(cluster[1])
    await cluster[1].shard.roll_topic("t")
    await compact(cluster[1])  # merges what became small
    assert [one.base_offset for one in cluster[1].partition().log.segments] == [0, 14]
    assert segment_of(cluster[1], 4)[2:5] == [(2, 5, 0), (5, 6, 1), (6, 9, 0)]
    before = table(cluster[2])
    await damage(cluster[2], 1)
    await repaired(cluster)
    assert segment_of(cluster[2], 4) == [(4, 5, 0), (5, 6, 1), (6, 8, 0)]
    assert table(cluster[2]) == before == EXPECTED
    await cluster.restart(2)
    assert table(cluster[2]) == EXPECTED
    segment = cluster[2].partition().log.segments[1]
    assert examine(cluster[2].disk, sealed_file(segment), at_once).damage == ()
    await send(cluster[1], b"a", b"5")  # acks=all
    await until(lambda: table(cluster[2])[b"a"] == b"5")


async def test_records_that_come_back_with_a_repair_are_compacted_again_before_their_tombstone_goes(cluster):
    """The leader still has a value, superseded by a tombstone behind the segment in the clean part of this log."""
    await compact(cluster[2])
    assert cluster[2].partition().compacted_end == 13
    await damage(cluster[2], 1)
    await repaired(cluster)
    assert [count for _, _, count in segment_of(cluster[2], 4)] == [1, 1, 1, 1], "all records are back"
    partition, core = cluster[2].partition(), cluster[1].replica().core
    assert partition.compacted_end == load_progress(cluster[2].disk, partition.log.directory).cleaned_end == 4
    assert core is not None
    await compact(cluster[1])
    assert core.compacted_by_all <= 4, "the leader knows that its copy is not compacted there"
    await compact(cluster[2])
    await send(cluster[1], b"last", PAD[:1000])
    await until(lambda: min(core.compacted_by_all, cluster[2].partition().compacted_by_all) >= 13)
    async with asyncio.timeout(60):
        while any(has_tombstone(cluster[node]) for node in (1, 2)):
            for node in (1, 2):
                assert table(cluster[node]) == EXPECTED
                await compact(cluster[node])
    assert table(cluster[1]) == table(cluster[2]) == EXPECTED


def has_tombstone(node: HostedNode) -> bool:
    return (b"d", None) in [(one.key, one.value) for one in node.records()]


async def test_a_repair_waits_for_the_records_that_made_the_leader_remove_others(cluster, caplog, monkeypatch):
    """With the leader's segment alone, a key would have no value in a log that ends before its later one."""
    monkeypatch.setattr(unreadable, "CATCH_UP_S", 0.0)
    await compact(cluster[1])
    partition = cluster[2].partition()
    partition.durable_end, durable_end = 13, partition.durable_end  # as if the last record were not fsynced yet
    await damage(cluster[2], 1)
    await until(lambda: "has not caught up with offset 14" in str([vars(one) for one in caplog.records]))
    assert partition.log.segments[1].damage
    partition.durable_end = durable_end
    await repaired(cluster)
    assert table(cluster[2]) == EXPECTED


async def test_a_segment_that_the_leader_has_lost_too_stays_damaged(cluster, caplog):
    await damage(cluster[1], 1)
    await damage(cluster[2], 1)
    await until(lambda: "a damaged segment is not repaired from the leader yet" in caplog.text)
    assert cluster[2].partition().log.segments[1].damage
    left = Path(cluster[2].partition().log.directory).iterdir()
    assert not [one for one in left if one.name.endswith(".tmp")]
    assert cluster[2].host.unreadable.repaired == 0
