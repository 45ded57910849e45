"""Retention in the store: records that only the store has expire by the topic's settings, and are removed a day
later.
"""

from dataclasses import replace
from functools import partial

import pytest

from engine.testing.memory_store import MemoryStore
from engine.tiering.manifest.chain import fold_if_due, iter_entries
from engine.tiering.manifest.manifest import (
    ENTRIES_MAX,
    FOLD_ENTRIES,
    Manifest,
    append,
    first_manifest,
    raise_log_start,
)
from engine.tiering.manifest.store_time import StoreTime
from engine.tiering.shipping.expiry import StoreExpiry
from engine.tiering.shipping.garbage_collection import GRACE_MS
from engine.tiering.shipping.local_log import LocalLog
from engine.tiering.store.store import ObjectStore, StoreUnavailable
from tests.engine.conftest import HandClock
from tests.engine.tiering.making import PREFIX, entry, local_log
from tests.engine.tiering.shipping_scene import WIDTH, Source, newest, sealed
from tests.engine.tiering.stores import Watched

DAY_MS = 24 * 3600 * 1000
SEGMENT_BYTES = 1000  # of an entry that `making.entry` makes


def manifest_of(count: int) -> Manifest:
    """The n-th run arrived when the store's clock was n * 100; the leader's own arrival times are wrong."""
    made = first_manifest(PREFIX, 1, "writer", 0)
    for at in range(count):
        made = append(made, replace(entry(at * 10, at * 10 + 10), arrived_ms=-at))
    return made


def filled(manifest: Manifest) -> MemoryStore:
    """Return a store with the objects of its runs."""
    store = MemoryStore()
    for one in manifest.entries:
        store.put(one.key, b"data")
        store.now_ms += 100
    return store


def log_without(end: int, **kept: int) -> LocalLog:
    """Return a log whose disk has nothing below an offset."""
    return replace(local_log([]), local_log_start=end, log_end=end, **kept)


def expired(store: ObjectStore, manifest: Manifest, local: LocalLog, now_ms: int | None = 0) -> int | None:
    expiry = StoreExpiry(store)
    assert expiry.is_due(manifest, local)
    found = expiry.expired_end(manifest, local, lambda: now_ms)
    assert expiry.expired_end(manifest, local, lambda: now_ms) == found, "a second call returns the same"
    return found


@pytest.mark.parametrize(("now_ms", "end"), [(0, None), (1000, None), (1001, 10), (1100, 10), (1101, 20), (9999, 40)])
def test_by_age_since_the_upload(now_ms, end):
    manifest = manifest_of(4)
    assert expired(filled(manifest), manifest, log_without(40, retention_ms=1000), now_ms) == end


def test_a_store_without_a_clock_expires_nothing_by_age():
    manifest = manifest_of(4)
    assert expired(filled(manifest), manifest, log_without(40, retention_ms=1000), None) is None
    assert expired(filled(manifest), manifest, log_without(40, retention_ms=1000, retention_bytes=1500), None) == 20


def test_one_pass_looks_at_so_many_objects(monkeypatch):
    monkeypatch.setattr("engine.tiering.shipping.expiry._READS_MAX", 3)
    manifest = manifest_of(5)
    assert expired(filled(manifest), manifest, log_without(50, retention_ms=1000), 9999) == 30


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


def test_an_object_that_is_lost_is_as_old_as_the_next_one():
    manifest = manifest_of(3)
    store = filled(manifest)
    store.delete(manifest.entries[0].key)
    local = log_without(30, retention_ms=1000)
    assert expired(store, manifest, local, 1001) is None
    assert expired(store, manifest, local, 1101) == 20
    for one in manifest.entries:
        store.delete(one.key)
    assert expired(store, manifest, local, 9999) is None


def test_a_folded_range_expires_entry_by_entry(new_id):
    count = ENTRIES_MAX + 1
    manifest = manifest_of(count)
    store = filled(manifest)
    manifest = fold_if_due(store, manifest, new_id)
    assert len(manifest.folded) == 1
    local = log_without(count * 10, retention_ms=1000)
    assert expired(store, manifest, local, 5 * 100 + 1001) == 60
    begun = raise_log_start(manifest, 60)
    assert expired(store, begun, local, 5 * 100 + 1001) is None
    by_size = log_without(count * 10, retention_bytes=(count - 7) * SEGMENT_BYTES)
    assert expired(store, begun, by_size) == 70, "records below log_start do not count"
    assert expired(store, begun, local, FOLD_ENTRIES * 100 + 1001) == (FOLD_ENTRIES + 1) * 10


def test_a_quiet_partition_asks_the_store_nothing(new_id):
    manifest = manifest_of(ENTRIES_MAX + 1)
    store = filled(manifest)
    manifest = fold_if_due(store, manifest, new_id)
    watched = Watched(store)
    clock = HandClock()
    expiry, time = StoreExpiry(watched), StoreTime(watched, clock)
    local = log_without(manifest.end_offset, retention_ms=DAY_MS)
    store_now = partial(time.now_ms, PREFIX, manifest.generation)
    assert expiry.expired_end(manifest, local, store_now) is None
    watched.calls.clear()
    clock.pass_ms(DAY_MS // 2)
    assert expiry.expired_end(manifest, local, store_now) is None
    assert watched.calls == []


def test_the_stores_time_advances_with_monotonic_time_and_is_read_again_after_a_day():
    store, clock = MemoryStore(5_000), HandClock()
    time = StoreTime(store, clock)
    assert time.now_ms(PREFIX, 1) == 5_000
    clock.pass_ms(1_000)
    clock.ms += 365 * DAY_MS
    assert time.now_ms(PREFIX, 1) == 6_000
    store.now_ms = 3 * DAY_MS  # the machine was suspended: its monotonic clock did not advance
    clock.pass_ms(DAY_MS)
    assert time.now_ms(PREFIX, 1) == 3 * DAY_MS


async def test_the_manifest_follows_and_objects_go_after_their_grace(tmp_path, make):
    segments = sealed(tmp_path, 4)
    source = Source(local_log([]))
    store = MemoryStore()
    shipper = make(store, source)
    clock = shipper.clock  # type: ignore[attr-defined]
    store.now_ms = clock.ms
    for count in range(1, 5):
        source.local = local_log(segments[:count])
        await shipper.ship_once()
        store.now_ms += 1000
        clock.ms += 1000
    keys = [one.key for one in iter_entries(store, newest(store))]
    gone = replace(source.local, sealed=(), local_log_start=4 * WIDTH)
    source.local = replace(gone, retention_ms=2500)  # the first two are older
    await shipper.ship_once()
    assert source.local.log_start == newest(store).log_start == 2 * WIDTH
    assert [one.key for one in newest(store).entries] == keys[2:]
    assert all(store.head(key) for key in keys), "readers of the earlier manifest may still need them"

    source.local = replace(source.local, retention_ms=None)
    clock.ms += 3 * GRACE_MS
    await shipper.ship_once()
    assert [store.head(key) is not None for key in keys] == [False, False, True, True]


async def test_a_manifest_never_drops_what_log_start_does_not_give_up(tmp_path, make):
    """The log changes first: otherwise a crash would leave promised offsets without records."""

    class Deaf(Source):
        async def raise_log_start(self, end_offset: int) -> int:
            raise StoreUnavailable("the shard is away")

    source, store = Deaf(local_log(sealed(tmp_path, 2))), MemoryStore()
    shipper = make(store, source)
    await shipper.ship_once()
    store.now_ms += DAY_MS
    source.local = replace(source.local, sealed=(), local_log_start=2 * WIDTH, retention_ms=1000)
    with pytest.raises(StoreUnavailable):
        await shipper.ship_once()
    assert (newest(store).log_start, newest(store).entry_count) == (0, 2)
