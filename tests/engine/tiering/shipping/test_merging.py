"""Small objects of a partition become one object: same bytes, same offsets, whatever fails on the way."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import EngineError
from engine.format.batch_header import empty_batch
from engine.runtime.disk import RealDisk
from engine.runtime.throttled_thread import ThrottledThread
from engine.tiering.manifest.chain import load_generation, load_newest
from engine.tiering.manifest.json_reading import UnsupportedFormat
from engine.tiering.reading.block_file import BlockFile
from engine.tiering.reading.cache import BlockCache
from engine.tiering.reading.remote_log import RemoteLog
from engine.tiering.shipping.expiry import StoreExpiry
from engine.tiering.shipping.garbage_collection import GRACE_MS, remove_expired_roots, remove_orphans
from engine.tiering.shipping.local_log import SealedSegment
from engine.tiering.shipping.merging import MergeLane
from engine.tiering.store.file_store import FileStore
from engine.tiering.store.store import ObjectStore
from tests.engine.tiering.making import PREFIX, local_log, segment_bytes
from tests.engine.tiering.shipping_scene import (
    WIDTH,
    Make,
    Source,
    check_joined,
    check_store,
    iter_ids,
    merge_lane,
    newest,
    sealed,
    ship_through,
)
from tests.engine.tiering.stores import FAILS, LOSES, Watched
from tests.engine.tiering.test_shipper_faults import Crash, Crashing


async def merged_store(store: ObjectStore, tmp_path: Path, make: Make, count: int = 4) -> Source:
    """Ship segments, each in its own object, and merge them all."""
    segments = sealed(tmp_path, count)
    source = Source(local_log(segments))
    await make(store, source).ship_once()
    check_store(store, segments)
    await make(store, source, merging=merge_lane(count_min=count)).ship_once()
    assert len(check_joined(store, segments)) == 1
    return source


async def test_a_run_of_small_objects_becomes_one_with_their_bytes(store, tmp_path, make):
    segments = sealed(tmp_path, 4)
    source = Source(local_log(segments))
    await make(store, source).ship_once()
    before = newest(store)
    shipper = make(store, source, merging=merge_lane())
    await shipper.ship_once()
    after = newest(store)
    [entry] = check_joined(store, segments)
    assert (entry.base_offset, entry.end_offset, entry.leader_epochs) == (0, 4 * WIDTH, ((1, 0),))
    assert (after.data_bytes, after.record_count) == (before.data_bytes, before.record_count)
    last = store.head(before.entries[-1].key)
    assert (entry.stored_ms, entry.arrived_ms) == (last.modified_ms, segments[-1].arrived_ms)
    assert all(store.head(one.key) for one in before.entries), "readers of the manifest before may need them"
    assert source.reported[-1] == 4 * WIDTH, "the readers of this process get the new manifest"
    await shipper.ship_once()
    assert newest(store) == after, "there is nothing more to merge"


async def test_merged_objects_and_new_ones_are_merged_again(file_store, tmp_path, make):
    source = await merged_store(file_store, tmp_path, make)
    segments = [*source.local.sealed, *sealed(tmp_path, 4, first=4, epoch=2)]
    source.local = local_log(segments)
    await make(file_store, source, epoch=2, merging=merge_lane(count_min=5)).ship_once()
    [entry] = check_joined(file_store, segments)
    assert entry.leader_epochs == ((1, 0), (2, 4 * WIDTH))


async def test_objects_wait_until_they_are_old_enough_by_the_stores_clock(file_store, tmp_path, make):
    segments = sealed(tmp_path, 4)
    source = Source(local_log(segments))
    shipper = make(file_store, source, merging=merge_lane(min_age_ms=60_000))
    await shipper.ship_once()
    shipper.clock.ms += 59_000  # type: ignore[attr-defined]
    await shipper.ship_once()
    check_store(file_store, segments)
    for _ in range(8):
        shipper.clock.ms += 15_000  # type: ignore[attr-defined]
        await shipper.ship_once()
    assert len(check_joined(file_store, segments)) == 1


async def test_older_readers_refuse_a_manifest_with_merged_objects(file_store, tmp_path, make, monkeypatch):
    """They would lose `stored_ms`, by which the records expire."""
    await merged_store(file_store, tmp_path, make)
    assert load_generation(file_store, PREFIX, 2).entries, "without a merge the format is the older one"
    monkeypatch.setattr("engine.tiering.manifest.encoding.FORMAT", 2)
    load_generation(file_store, PREFIX, 2)
    with pytest.raises(UnsupportedFormat, match="has format 3, this version knows up to 2"):
        load_newest(file_store, PREFIX)


async def test_merged_records_expire_by_the_time_of_their_last_upload(file_store, tmp_path, make):
    await merged_store(file_store, tmp_path, make)
    manifest = newest(file_store)
    stored_ms = manifest.entries[0].stored_ms
    assert stored_ms is not None
    local = replace(local_log([]), local_log_start=4 * WIDTH, log_end=4 * WIDTH, retention_ms=1000)
    expired = [StoreExpiry(file_store).expired_end(manifest, local, lambda: stored_ms + 1000 + more) for more in (0, 1)]  # noqa: B023
    assert expired == [None, 4 * WIDTH]


async def test_sources_are_removed_a_day_after_the_merge_and_not_before(file_store, tmp_path, make):
    segments = sealed(tmp_path, 4)
    source = Source(local_log(segments))
    await make(file_store, source).ship_once()
    names = [key for one in newest(file_store).entries for key in (one.key, one.aux_key)]
    old = [Path(file_store.url.removeprefix("file://")) / name for name in names]
    for path in Path(file_store.url.removeprefix("file://")).rglob("*"):
        if path.is_file():
            set_age(path, 3 * GRACE_MS)  # shipped three days ago, and never cleaned since
    shipper = make(file_store, source, merging=merge_lane())
    await shipper.ship_once()
    now_ms = shipper.clock.ms  # type: ignore[attr-defined]
    assert remove_orphans(file_store, newest(file_store), now_ms) == 0
    remove_expired_roots(file_store, PREFIX, now_ms)
    assert remove_orphans(file_store, newest(file_store), now_ms) == 0
    assert all(path.exists() for path in old)
    later_ms = now_ms + GRACE_MS + 60_000
    remove_expired_roots(file_store, PREFIX, later_ms)
    assert remove_orphans(file_store, newest(file_store), later_ms) == len(old)
    check_joined(file_store, segments)


def set_age(path: Path, age_ms: int) -> None:
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns - age_ms * 10**6))


@pytest.mark.parametrize("kind", ["gone", "changed"])
async def test_an_object_that_is_not_as_its_manifest_says_is_left_and_logged_once(
    kind, file_store, tmp_path, make, caplog
):
    segments = sealed(tmp_path, 5)
    source = Source(local_log(segments))
    await make(file_store, source).ship_once()
    entries = newest(file_store).entries
    if kind == "gone":
        file_store.delete(entries[2].key)
    else:
        file_store.put(entries[2].key, b"x" * entries[2].size_bytes)
    shipper = make(file_store, source, merging=merge_lane())
    for _ in range(5):
        await shipper.ship_once()
    ends = [(one.base_offset // WIDTH, one.end_offset // WIDTH) for one in newest(file_store).entries]
    assert ends == [(0, 2), (2, 3), (3, 5)]
    assert caplog.messages.count("an object of the store cannot be merged") == 1


async def test_folded_objects_are_merged_and_their_lists_joined(file_store, tmp_path, make, monkeypatch):
    monkeypatch.setattr("engine.tiering.manifest.manifest.ENTRIES_MAX", 4)
    monkeypatch.setattr("engine.tiering.manifest.manifest.FOLD_ENTRIES", 3)
    monkeypatch.setattr("engine.tiering.shipping.merging.FOLD_ENTRIES", 3)
    segments = sealed(tmp_path, 11)
    source = Source(local_log(segments))
    await make(file_store, source).ship_once()
    before = newest(file_store)
    assert [ref.entry_count for ref in before.folded] == [3, 3, 3]
    shipper = make(file_store, source, merging=merge_lane())
    for _ in range(10):
        await shipper.ship_once()
    after = newest(file_store)
    check_joined(file_store, segments)
    assert [ref.entry_count for ref in after.folded] == [2]
    assert (after.record_count, after.data_bytes) == (before.record_count, before.data_bytes)
    assert len(after.entries) == 1


async def test_one_partition_merges_at_a_time(file_store, tmp_path, make):
    segments = sealed(tmp_path, 4)
    source = Source(local_log(segments))
    lane = merge_lane()
    lane.busy.acquire()
    shipper = make(file_store, source, merging=lane)
    await shipper.ship_once()
    await shipper.ship_once()
    check_store(file_store, segments)
    lane.busy.release()
    await shipper.ship_once()
    assert len(check_joined(file_store, segments)) == 1


async def test_a_stop_ends_a_merge_between_two_objects_and_nothing_has_changed(file_store, tmp_path, make):
    segments = sealed(tmp_path, 4)
    source = Source(local_log(segments))
    await make(file_store, source).ship_once()
    before = [found.key for found in file_store.list(PREFIX)]
    lane = MergeLane(merge_lane().rules, ThrottledThread("merge", 1))  # a byte a second: the merge would take minutes
    running = asyncio.ensure_future(make(file_store, source, merging=lane).ship_once())
    async with asyncio.timeout(60):
        while not lane.busy.locked():
            await asyncio.sleep(0.001)
        running.cancel()
        await lane.thread.stop(None)
        while lane.busy.locked():
            await asyncio.sleep(0.001)
    await asyncio.gather(running, return_exceptions=True)
    assert [found.key for found in file_store.list(PREFIX) if "latest" not in found.key] == [
        key for key in before if "latest" not in key
    ]
    check_store(file_store, segments)


async def test_an_object_that_begins_with_an_empty_batch_of_a_compaction_is_left(file_store, tmp_path, make):
    """The batch may begin in the object before it, and then the two do not join."""
    segments = sealed(tmp_path, 2)
    filler = bytes(empty_batch(WIDTH + 3, 2 * WIDTH + 3, 1, 5))
    data = filler + segment_bytes(2 * WIDTH + 3)
    third = SealedSegment(WIDTH + 3, 3 * WIDTH + 3, str(tmp_path / "third.log"), len(data))
    Path(third.path).write_bytes(data)
    source = Source(local_log([*segments, third]))
    await make(file_store, source).ship_once()
    assert [one.base_offset for one in newest(file_store).entries] == [0, WIDTH, 2 * WIDTH]
    shipper = make(file_store, source, merging=merge_lane())
    for _ in range(3):
        await shipper.ship_once()
    ends = [(one.base_offset, one.end_offset) for one in newest(file_store).entries]
    assert ends == [(0, 2 * WIDTH), (2 * WIDTH, 3 * WIDTH + 3)]


# Faults and leaders


@pytest.mark.parametrize("fault", ["crash before", "crash after", FAILS, LOSES])
async def test_a_fault_at_any_call_of_a_merge_leaves_the_same_records(fault, tmp_path, make):
    segments = sealed(tmp_path, 3)
    ids = iter_ids()

    async def shipped(name: str) -> FileStore:
        store = FileStore(f"{tmp_path}/{name}", new_id=ids)
        await make(store, Source(local_log(segments))).ship_once()
        return store

    counted = Watched(await shipped("counted"))
    await make(counted, Source(local_log(segments)), merging=merge_lane()).ship_once()
    assert len(counted.calls) > 12
    for k in range(len(counted.calls)):
        store, source = await shipped(f"store-{k}"), Source(local_log(segments))
        if fault.startswith("crash"):
            crashing = Crashing(store, k, fault.removeprefix("crash "))
            with pytest.raises(Crash):
                await make(crashing, source, merging=merge_lane()).ship_once()
        else:
            watched = Watched(store, lambda number, method, key, k=k: fault if number == k else None)  # type: ignore[misc]
            await ship_through(make(watched, source, merging=merge_lane()))
        check_joined(store, segments)
        next_one = make(store, source, merging=merge_lane(), writer="next")
        await next_one.ship_once()
        assert len(check_joined(store, segments)) == 1


async def test_a_leader_that_lost_its_epoch_in_a_merge_changes_nothing(file_store, tmp_path, make):
    segments = sealed(tmp_path, 4)
    await make(file_store, Source(local_log(segments[:3]))).ship_once()
    new = make(file_store, Source(local_log(segments)), epoch=2, writer="new", merging=merge_lane())
    fenced: list[int] = []

    def during(number: int, method: str, key: str) -> None:
        """The new leader ships and merges while the old one has read its sources."""
        if method == "put" and key.endswith(".aux") and not fenced:
            fenced.append(number)
            asyncio.run(new.ship_once())

    old = make(Watched(file_store, during), Source(local_log(segments[:3])), merging=merge_lane())
    with pytest.raises(EngineError):
        await old.ship_once()
    assert fenced
    check_joined(file_store, segments)
    assert newest(file_store).leader_epoch == 2


async def test_two_leaders_that_merge_in_parallel_leave_one_log(store, tmp_path, make):
    segments = sealed(tmp_path, 8)
    sources = {epoch: Source(local_log(segments)) for epoch in (1, 2)}
    shippers = {
        epoch: make(store, source, epoch=epoch, writer=f"leader {epoch}", merging=merge_lane())
        for epoch, source in sources.items()
    }
    running = [asyncio.ensure_future(shipper.run()) for shipper in shippers.values()]
    async with asyncio.timeout(60):
        while not (found := load_newest(store, PREFIX)) or (found.end_offset, len(found.entries)) != (8 * WIDTH, 1):
            await asyncio.sleep(0.01)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    check_joined(store, segments)
    assert newest(store).leader_epoch == 2


# Readers


@pytest.fixture
def remote_log(tmp_path, executor) -> Callable[[ObjectStore], RemoteLog]:
    cache = BlockCache(BlockFile(RealDisk(), f"{tmp_path}/blocks", 64 << 20), executor)
    cache.open()
    return lambda store: RemoteLog(store, PREFIX, cache, executor=executor)


async def test_a_reader_with_an_old_manifest_goes_on_after_its_objects_are_gone(file_store, tmp_path, make, remote_log):
    segments = sealed(tmp_path, 6)
    source = Source(local_log(segments))
    await make(file_store, source).ship_once()
    watched = Watched(file_store)
    log = remote_log(watched)
    joined = b"".join(Path(one.path).read_bytes() for one in segments)
    assert await read_all(log, 0, 6 * WIDTH) == joined, "the cache has blocks of each object"
    old = newest(file_store).entries
    source.local = local_log(segments[:])
    lane = merge_lane(target_bytes=sum(one.size_bytes for one in segments[:4]))
    shipper = make(file_store, source, merging=lane)
    await shipper.ship_once()
    assert newest(file_store).entries[0].end_offset == 4 * WIDTH
    for one in old[:4]:
        file_store.delete(one.key)
    fresh = remote_log(file_store)
    for reader in (log, fresh):
        for start in (0, WIDTH, 2 * WIDTH, 4 * WIDTH, 5 * WIDTH):  # before, in and after the merged range
            assert await read_all(reader, start, 6 * WIDTH) == joined[offset_bytes(segments, start) :]


def offset_bytes(segments: list, offset: int) -> int:
    return sum(one.size_bytes for one in segments if one.end_offset <= offset)


async def read_all(log: RemoteLog, start: int, end: int) -> bytes:
    found = b""
    while start < end:
        chunk = await log.read_chunk(start, 1 << 20)
        found += bytes(chunk.data)
        start = chunk.next_offset
    return found
