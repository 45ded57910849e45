"""Retention in the store: what only the store has expires by the topic's settings, and goes after a day of grace."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from engine import batch as record_batch
from engine.disk import RealDisk
from engine.errors import OffsetBelowLogStart
from engine.tiering.cache import TierCache
from engine.tiering.collect import GRACE_MS
from engine.tiering.expiry import StoreExpiry
from engine.tiering.manifest import ENTRIES_MAX, FOLD_ENTRIES, Manifest, append, first_manifest, raise_log_start
from engine.tiering.manifest_chain import fold_if_due, iter_entries
from engine.tiering.remote_log import RemoteLog
from engine.tiering.shipper import PartitionShipper, ShipperComponents
from engine.tiering.store import ObjectStore, StoreUnavailable
from engine.tiering.tier import _Source
from engine.tiering.values import LocalLog
from replication.acks import Acks
from tests.engine.conftest import HandClock, running_node
from tests.engine.tiering.making import PREFIX, entry, local_log
from tests.engine.tiering.shipping import QUICK, WIDTH, Make, Source, newest, sealed
from tests.engine.tiering.stores import Watched

DAY_MS = 24 * 3600 * 1000
SEGMENT_BYTES = 1000  # of an entry that `making.entry` makes


def manifest_of(count: int, *, arrived: Callable[[int], int | None] = lambda at: at * 100) -> Manifest:
    made = first_manifest(PREFIX, 1, "writer", 0)
    for at in range(count):
        made = append(made, replace(entry(at * 10, at * 10 + 10), arrived_ms=arrived(at)))
    return made


def log_without(end: int, **kept: int) -> LocalLog:
    """A log whose disk has nothing below an offset."""
    return replace(local_log([]), local_log_start=end, log_end=end, **kept)


def expired(store: ObjectStore, manifest: Manifest, local: LocalLog, now_ms: int = 0) -> int | None:
    expiry = StoreExpiry(store)
    assert expiry.is_due(manifest, local)
    found = expiry.expired_end(manifest, local, now_ms)
    assert expiry.expired_end(manifest, local, now_ms) == found, "the same when asked again"
    return found


@pytest.mark.parametrize(("now_ms", "end"), [(0, None), (1000, None), (1001, 10), (1100, 10), (1101, 20), (9999, 40)])
def test_by_age_since_arrival(file_store, now_ms, end):
    assert expired(file_store, manifest_of(4), log_without(40, retention_ms=1000), now_ms) == end


@pytest.mark.parametrize(("keep", "end"), [(9999, None), (4000, None), (3001, None), (3000, 10), (1500, 20), (1, 30)])
def test_by_size(file_store, keep, end):
    assert expired(file_store, manifest_of(4), log_without(40, retention_bytes=keep)) == end


def test_what_the_disk_has_counts_and_stays_the_logs_to_expire(file_store, tmp_path):
    segments = sealed(tmp_path, 2, first=2)  # 24..48; the store has 0..40
    local = replace(local_log(segments), active_bytes=500, retention_bytes=1)
    assert expired(file_store, manifest_of(4), local) == 20
    unshipped = sum(one.size_bytes for one in segments if one.base_offset >= 40) + 500
    keep = 4 * SEGMENT_BYTES + unshipped
    assert expired(file_store, manifest_of(4), replace(local, retention_bytes=keep)) is None
    assert expired(file_store, manifest_of(4), replace(local, retention_bytes=keep - SEGMENT_BYTES)) == 10


def test_nothing_is_due_where_nothing_is_bounded_or_all_is_on_the_disk(file_store):
    expiry = StoreExpiry(file_store)
    assert not expiry.is_due(manifest_of(4), log_without(40))
    assert not expiry.is_due(manifest_of(4), log_without(0, retention_ms=1))
    assert not expiry.is_due(manifest_of(0), log_without(40, retention_ms=1))


def test_an_entry_that_does_not_tell_its_arrival_ages_from_its_upload(file_store):
    manifest = manifest_of(2, arrived=lambda _: None)
    for one in manifest.entries:
        file_store.put(one.key, b"data")
    uploaded_ms = file_store.head(manifest.entries[0].key).modified_ms
    local = log_without(20, retention_ms=DAY_MS)
    assert expired(file_store, manifest, local, uploaded_ms + DAY_MS) is None
    assert expired(file_store, manifest, local, uploaded_ms + 2 * DAY_MS) == 20
    file_store.delete(manifest.entries[0].key)
    assert expired(file_store, manifest, local, uploaded_ms + 2 * DAY_MS) is None


def test_a_folded_range_expires_entry_by_entry(file_store, new_id):
    count = ENTRIES_MAX + 1
    manifest = fold_if_due(file_store, manifest_of(count), new_id)
    assert len(manifest.folded) == 1
    local = log_without(count * 10, retention_ms=1000)
    assert expired(file_store, manifest, local, 5 * 100 + 1001) == 60
    begun = raise_log_start(manifest, 60)
    assert expired(file_store, begun, local, 5 * 100 + 1001) is None
    by_size = log_without(count * 10, retention_bytes=(count - 7) * SEGMENT_BYTES)
    assert expired(file_store, begun, by_size) == 70, "what lies below log_start already does not count"
    assert expired(file_store, begun, local, FOLD_ENTRIES * 100 + 1001) == (FOLD_ENTRIES + 1) * 10


def test_a_quiet_partition_asks_the_store_nothing(file_store, new_id):
    manifest = fold_if_due(file_store, manifest_of(ENTRIES_MAX + 1), new_id)
    watched = Watched(file_store)
    expiry = StoreExpiry(watched)
    local = log_without(manifest.end_offset, retention_ms=1000)
    assert expiry.expired_end(manifest, local, 0) is None
    watched.calls.clear()
    assert expiry.expired_end(manifest, local, 0) is None
    assert watched.calls == []


async def test_the_manifest_follows_and_objects_go_after_their_grace(
    file_store: ObjectStore, tmp_path: Path, make: Make
) -> None:
    segments = [replace(one, arrived_ms=at * 1000) for at, one in enumerate(sealed(tmp_path, 4))]
    source = Source(local_log(segments))
    shipper = make(file_store, source)
    clock = shipper.clock  # type: ignore[attr-defined]
    await shipper.ship_once()
    keys = [one.key for one in iter_entries(file_store, newest(file_store))]
    gone = replace(source.local, sealed=(), local_log_start=4 * WIDTH)
    source.local = replace(gone, retention_ms=clock.ms - 1500)  # older than 1500: the first two
    await shipper.ship_once()
    assert source.local.log_start == newest(file_store).log_start == 2 * WIDTH
    assert [one.key for one in newest(file_store).entries] == keys[2:]
    assert all(file_store.head(key) for key in keys), "whoever has read the manifest before may read them yet"

    source.local = replace(source.local, retention_ms=None)
    clock.ms += 3 * GRACE_MS
    await shipper.ship_once()
    assert [file_store.head(key) is not None for key in keys] == [False, False, True, True]


async def test_a_manifest_never_drops_what_log_start_does_not_give_up(
    file_store: ObjectStore, tmp_path: Path, make: Make
) -> None:
    """The log's word comes first: were it lost, offsets would be promised that nobody has."""

    class Deaf(Source):
        async def expired(self, end_offset: int) -> int:
            raise StoreUnavailable("the shard is away")

    source = Deaf(local_log([replace(one, arrived_ms=0) for one in sealed(tmp_path, 2)]))
    shipper = make(file_store, source)
    await shipper.ship_once()
    source.local = replace(source.local, sealed=(), local_log_start=2 * WIDTH, retention_ms=1000)
    with pytest.raises(StoreUnavailable):
        await shipper.ship_once()
    assert (newest(file_store).log_start, newest(file_store).entry_count) == (0, 2)


async def test_a_real_log_lets_go_locally_first_and_then_everywhere(file_store, tmp_path):
    clock = HandClock()
    config = {"local_retention_bytes": 0, "retention_ms": DAY_MS}
    async with running_node(tmp_path / "data", clock) as node:
        shard = node.shard
        await shard.create_topic("t", 1, 1, config)
        partition, leader = shard.partition("t", 0), node.leaders["t", 0]
        with ThreadPoolExecutor(2) as executor:
            ids = iter(f"{n:032x}" for n in range(100))
            parts = ShipperComponents(file_store, RealDisk(), clock, Random(1), ids.__next__, executor)
            ends: list[int] = [0]
            source = _Source(shard, partition, ends.append)
            shipper = PartitionShipper(PREFIX, source, writer="w", components=parts, options=QUICK)
            shard.tiered_end = lambda _: ends[-1]
            for _ in range(3):
                data = record_batch.encode_values([b"x"] * 10, 5)
                await leader.acknowledged(leader.append(data, Acks.ALL), Acks.ALL, 5000)
                await shard.roll_topic("t")
                clock.pass_ms(DAY_MS // 3)
            await shipper.ship_once()
            await shard._expire(partition)
            found = partition.statistics()
            assert (found.log_start, found.local_log_start, found.log_end) == (0, 30, 30)
            cache = TierCache(str(tmp_path / "cache"), 1 << 26)
            await cache.open()
            remote = RemoteLog(file_store, PREFIX, cache, disk=RealDisk(), executor=executor)
            assert await remote.read(0, 1)

            clock.pass_ms(DAY_MS // 6)
            await shard._expire(partition)
            assert partition.log.log_start == 0, "the disk knows nothing of it any more"
            await shipper.ship_once()
            assert partition.log.log_start == newest(file_store).log_start == 10
            with pytest.raises(OffsetBelowLogStart):
                partition.check_readable(0)
            remote.adopt(newest(file_store))
            with pytest.raises(OffsetBelowLogStart):
                await remote.read(0, 1)
            assert await remote.read(10, 1)
            points = shard.directory.load_checkpoints()
            assert [point.log_start for point in points.values()] == [10], "durable before the manifest says so"
