"""Changes of the leader while it ships: two shards on their disks, one store. The store has each offset once, in one
history.

The test itself copies to a follower: batches byte for byte, after their epochs. Replicas roll at different offsets.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from engine.errors import OffsetBelowLogStart
from engine.format.batch import Row, decode, encode, walk
from engine.log.epochs import EpochStart
from engine.log.leader_epochs import record_epoch, start_epoch
from engine.runtime.clock import SystemClock
from engine.tiering.manifest.chain import iter_entries, load_newest
from engine.tiering.manifest.manifest import Manifest, problem_of
from engine.tiering.reading.remote_logs import RemoteLogs
from engine.tiering.shipping.garbage_collection import GRACE_MS, remove_orphans
from engine.tiering.shipping.manifest_watch import ManifestWatch
from engine.tiering.shipping.shipper import ShipperComponents
from engine.tiering.shipping.shippers import Shipping
from engine.tiering.store.store import ObjectStore
from engine.tiering.tier import Tier
from replication.replica.acks import Acks
from spark_ingest.source.discovery import discover, slices_of
from spark_ingest.source.scan import scan
from tests.engine.conftest import HandClock, running_node
from tests.engine.tiering.making import local_log, offsets_of
from tests.engine.tiering.shipping_scene import QUICK, WIDTH, Source, newest, sealed
from tests.engine.tiering.stores import Watched
from tests.waiting import until

COUNT = 3  # records per batch


class Replica:
    """One node's copy of the partition and its tiering. `leads` is the epoch, or None."""

    def __init__(self, node, tier: Tier) -> None:
        self.shard = node.shard
        self.tier = tier
        self.leads: int | None = None
        self.partition = node.shard.partition("t", 0)
        self._leader = node.leaders["t", 0]
        node.hooks.leading_epoch = lambda _: self.leads

    def begin(self, epoch: int) -> None:
        start_epoch(self.partition.log, epoch)
        self.leads = epoch
        self.tier.wake_shipper(self.partition)

    def follow(self) -> None:
        self.leads = None
        self.tier.wake_shipper(self.partition)

    async def produce(self, batches: int) -> None:
        for _ in range(batches):
            at = self.partition.log_end
            batch = encode([Row(at + n, None, b"%d" % (at + n), []) for n in range(COUNT)])
            await self._leader.produce(batch, Acks.ALL, 10_000)

    async def copy_from(self, other: Replica) -> None:
        log, end = self.partition.log, self.partition.log_end
        while end < other.partition.high_watermark:
            chunk = await other.shard.reader.read(other.partition, end, 1 << 20)
            for at, header in walk(chunk.data):
                record_epoch(log, header.leader_epoch, header.base_offset)
                log.leader_epoch = header.leader_epoch
                batch = bytearray(chunk.data[at : at + header.size_bytes])
                await self._leader.produce(batch, Acks.ALL, 10_000)
                end = header.next_offset
        assert self.partition.log_end == other.partition.log_end

    async def roll(self) -> None:
        await self.shard.roll_topic("t")

    async def is_shipped(self, end: int) -> None:
        """True if its own node knows that the store has everything below."""
        await until(lambda: self.tier.tiered_end(self.partition) >= end)

    async def statistics(self):
        return await self.tier.statistics(self.partition)


@asynccontextmanager
async def replica(path: Path, clock: HandClock, store: ObjectStore, name: str) -> AsyncIterator[Replica]:
    """A replica; every node uses the same ids, since it is one cluster and one topic."""
    with ThreadPoolExecutor(2) as threads:
        async with running_node(path / name, clock, ids=(f"id{n}" for n in itertools.count())) as node:
            new_id = (f"{name}{n}" for n in itertools.count()).__next__
            components = ShipperComponents(store, node.shard.disk, clock, Random(1), new_id, threads)
            shipping = Shipping(components, QUICK, node.shard.directory.identity.cluster_id, writer=name)
            tier = Tier(
                shipping,
                RemoteLogs(store, node.shard.directory, threads, cache_bytes_max=1 << 30),
                store.url,
            )
            lead = node.hooks.opened

            def opened(shard, topic, partition) -> None:
                lead(shard, topic, partition)
                tier.add(shard, topic.record, partition)

            node.hooks.opened, node.hooks.sealed, node.hooks.tiered_end = opened, tier.wake_shipper, tier.tiered_end
            node.hooks.leading_epoch = lambda _: None
            await tier.start()
            await node.shard.create_topic("t", 1, 1, {"local_retention_bytes": 0})
            yield Replica(node, tier)
            await tier.stop()


@pytest.fixture
async def pair(tmp_path, clock, file_store):
    async with replica(tmp_path, clock, file_store, "a") as a, replica(tmp_path, clock, file_store, "b") as b:
        assert prefix_of(a) == prefix_of(b)
        yield a, b


def prefix_of(one: Replica) -> str:
    cluster_id = one.shard.directory.identity.cluster_id
    return f"{cluster_id}/t/{one.shard.topic('t').record.topic_id}/0/"


def check_history(store: ObjectStore, one: Replica, epochs: list[tuple[int, int]]) -> Manifest:
    """Assert no gap and no overlap, by the manifest's rules and in Spark's reader, with these leaders from these
    offsets.
    """
    manifest = load_newest(store, prefix_of(one))
    assert manifest is not None
    assert problem_of(manifest) is None
    entries = [*iter_entries(store, manifest)]
    assert [start for entry in entries for start in entry.leader_epochs if start in epochs] == epochs
    [found] = discover(store, one.shard.directory.identity.cluster_id, lambda _: True)
    slices = list(slices_of(found, found.log_start, found.tiered_end, {}))
    offsets = [offset for scanned in scan(store, slices) for offset in offsets_of(scanned)]
    assert offsets == [*range(manifest.log_start, manifest.end_offset)]
    return manifest


async def read_all(one: Replica) -> list[tuple[int, bytes]]:
    """Read every record as the gateway does, from the store below the local log."""
    found: list[tuple[int, bytes]] = []
    offset = one.partition.log.log_start
    while offset < one.partition.high_watermark:
        reads = one.shard.reader if offset >= one.partition.log.local_log_start else one.tier
        chunk = await reads.read(one.partition, offset, 1000)
        found += [(record.offset, record.value) for record in decode(chunk.data) if record.offset >= offset]
        offset = chunk.next_offset
    return found


async def test_a_new_leader_continues_where_the_old_one_stopped_within_its_segment(pair, file_store):
    a, b = pair
    a.begin(1)
    await a.produce(4)
    await a.roll()
    await a.is_shipped(12)
    await a.produce(2)
    await b.copy_from(a)
    a.follow()
    b.begin(2)
    await b.produce(3)
    await b.roll()
    await b.is_shipped(27)
    manifest = check_history(file_store, a, [(1, 0), (1, 12), (2, 18)])
    assert [(one.base_offset, one.end_offset) for one in manifest.entries] == [(0, 12), (12, 27)]
    assert manifest.leader_epoch == 2
    await b.shard.deletion.expire(b.partition)
    assert b.partition.log.local_log_start == 27
    assert await read_all(b) == [(at, b"%d" % at) for at in range(27)]


async def test_a_zombie_that_uploads_in_parallel_is_refused_and_leaves_no_trace(pair, file_store):
    """It does not know that it was replaced, and treats records as committed that no other replica has."""
    a, b = pair
    a.begin(1)
    await a.produce(4)
    await a.roll()
    await a.is_shipped(12)
    await b.copy_from(a)
    b.begin(2)
    await b.produce(4)
    await b.roll()
    await b.is_shipped(24)
    await a.produce(6)
    await a.roll()
    async with asyncio.timeout(60):
        while "leader epoch 1 is over" not in ((await a.statistics()).last_error or ""):
            await asyncio.sleep(0.005)
    manifest = check_history(file_store, b, [(1, 0), (2, 12)])
    assert manifest.end_offset == 24
    assert a.tier.tiered_end(a.partition) == 12, "its other records are not in the store"
    named = {key for entry in manifest.entries for key in (entry.key, entry.aux_key)}
    left = {one.key for one in file_store.list(prefix_of(a)) if "/manifest/" not in one.key}
    assert named < left, "the zombie's objects are in the store, and no manifest names them"
    later_ms = SystemClock().now_ms() + GRACE_MS + 60_000
    assert remove_orphans(file_store, manifest, later_ms) == len(left - named)
    check_history(file_store, b, [(1, 0), (2, 12)])


async def test_a_follower_keeps_its_segments_until_the_leader_has_shipped_them(pair, file_store, clock):
    a, b = pair
    a.begin(1)
    await a.produce(4)
    await b.copy_from(a)
    await b.roll()
    await b.shard.deletion.expire(b.partition)
    assert b.partition.log.local_log_start == 0
    await a.roll()
    await a.is_shipped(12)
    clock.pass_ms(31_000)
    b.tier.wake_shipper(b.partition)
    await b.is_shipped(12)
    await b.shard.deletion.expire(b.partition)
    assert b.partition.log.local_log_start == 12
    assert b.partition.log.log_start == 0
    check_history(file_store, a, [(1, 0)])


async def test_only_the_leader_expires_records_for_everybody(pair, clock):
    a, b = pair
    for one in pair:
        await one.shard.alter_topic("t", {"retention_ms": 60_000, "local_retention_bytes": None})
    a.begin(1)
    await a.produce(4)
    await b.copy_from(a)
    for one in pair:
        await one.roll()
    clock.pass_ms(61_000)
    for one in pair:
        await one.shard.deletion.expire(one.partition)
    assert a.partition.log.log_start == 12
    assert b.partition.log.log_start == 0
    assert await b.shard.raise_log_start(b.partition, 12) == 0
    with pytest.raises(OffsetBelowLogStart):
        a.partition.check_readable(3)


async def test_a_new_leader_takes_over_the_log_start_that_the_store_has(pair, file_store):
    a, b = pair
    a.begin(1)
    for _ in range(2):
        await a.produce(4)
        await a.roll()
    await a.is_shipped(24)
    await b.copy_from(a)
    await b.roll()
    await a.shard.deletion.expire(a.partition)
    await a.shard.raise_log_start(a.partition, 12)
    a.tier.wake_shipper(a.partition)
    async with asyncio.timeout(60):
        while load_newest(file_store, prefix_of(a)).log_start < 12:  # type: ignore[union-attr]
            await asyncio.sleep(0.005)
    a.follow()
    b.begin(2)
    await b.produce(1)
    await b.roll()
    await b.is_shipped(27)
    await b.shard.deletion.expire(b.partition)
    b.tier.wake_shipper(b.partition)
    await until(lambda: b.partition.log.log_start >= 12)
    assert await read_all(b) == [(at, b"%d" % at) for at in range(12, 27)]


# Components


async def test_following_asks_the_store_only_while_it_could_let_something_go(file_store, tmp_path, make):
    segments = sealed(tmp_path, 2)
    watched = Watched(file_store)
    source = Source(local_log([]))
    follower = make(watched, source)
    source.leader_epoch = None
    await follower.ship_once()
    assert watched.calls == []
    source.local = local_log(segments)
    await follower.ship_once()
    assert len(watched.calls) == 3, "the hint, which is not there, and two LISTs"
    await follower.ship_once()
    assert len(watched.calls) == 3, "not again at once"
    await make(file_store, Source(local_log(segments))).ship_once()
    follower.clock.ms += 60_000  # type: ignore[attr-defined]
    await follower.ship_once()
    assert source.reported == [2 * WIDTH]
    calls = len(watched.calls)
    follower.clock.ms += 60_000  # type: ignore[attr-defined]
    await follower.ship_once()
    assert len(watched.calls) == calls, "the store has all that is sealed here"
    assert follower.statistics().state == "following"


async def test_a_node_that_leads_again_continues_from_what_others_have_shipped(file_store, tmp_path, make):
    segments = sealed(tmp_path, 3)
    source = Source(local_log(segments[:1]))
    shipper = make(file_store, source, epoch=1)
    await shipper.ship_once()
    source.leader_epoch = None
    await make(file_store, Source(local_log(segments[:2])), epoch=2).ship_once()
    source.local, source.leader_epoch = local_log(segments), 3
    await shipper.ship_once()
    assert shipper.statistics().shipped_segments == 2
    assert newest(file_store).leader_epoch == 3
    assert [entry.end_offset for entry in newest(file_store).entries] == [WIDTH, 2 * WIDTH, 3 * WIDTH]


@pytest.mark.parametrize("leads", [2, None])
async def test_records_that_an_unclean_election_put_in_place_of_shipped_ones_stay_on_the_disk(
    file_store, tmp_path, make, leads
):
    """The store keeps its records; nothing is appended to them, and no local segment is deleted because of them."""
    segments = sealed(tmp_path, 2)
    source = Source(replace(local_log(segments), epochs=(EpochStart(1, 0),)))
    shipper = make(file_store, source)
    await shipper.ship_once()
    others = sealed(tmp_path, 3, epoch=2)
    source.local = replace(local_log(others), epochs=(EpochStart(1, 0), EpochStart(2, WIDTH)))
    source.leader_epoch = leads
    await shipper.ship_once()
    assert source.reported[-1] == 0
    assert newest(file_store).end_offset == 2 * WIDTH
    if leads:
        assert "before 24 is of epoch 1 in the store, of 2 in the log" in str(shipper.statistics().last_error)


def test_a_watch_is_due_again_after_a_failure_no_sooner_than_after_an_answer(file_store, tmp_path, clock):
    watch = ManifestWatch(file_store, "cluster/t/id/0/", clock)
    local = local_log(sealed(tmp_path, 1))
    assert watch.is_due(None, local)
    assert watch.poll() is None
    assert not watch.is_due(None, local)
    clock.pass_ms(31_000)
    assert watch.is_due(None, local)
