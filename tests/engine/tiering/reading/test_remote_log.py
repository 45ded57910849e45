"""Reads from the store return the bytes of the local log, from cached copies or directly, after any change of the
copies.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.errors import Corrupt, OffsetBelowLogStart
from engine.format.batch import decode, walk
from engine.runtime.disk import RealDisk
from engine.tiering.manifest import manifest as rules
from engine.tiering.manifest.chain import commit, fold_if_due, take_over
from engine.tiering.manifest.manifest import Manifest, append, raise_log_start, successor
from engine.tiering.reading.cache import TierCache
from engine.tiering.reading.remote_log import RemoteLog
from engine.tiering.shipping.plan import Upload
from engine.tiering.shipping.upload import upload_segment
from engine.tiering.store.store import ObjectStore, StoreUnavailable
from tests.engine.tiering.making import PREFIX, batch, segment_bytes, write_segment
from tests.engine.tiering.stores import FAILS, Watched

SEGMENTS, BATCHES, COUNT = 3, 40, 5
WIDTH = BATCHES * COUNT  # offsets per segment


def ship(store: ObjectStore, directory: Path, new_id: Callable[[], str], *segments: bytes) -> Manifest:
    """Put segments into the store and commit them, as the shipper does."""
    manifest = take_over(store, PREFIX, 1, "writer", 0)
    for data in segments:
        segment = write_segment(directory, data)
        one = upload_segment(store, RealDisk(), PREFIX, Upload(segment, segment.base_offset), 1, new_id)
        manifest = append(successor(manifest, 1, "writer"), one)
        commit(store, manifest)
    return manifest


def log_bytes() -> list[bytes]:
    return [segment_bytes(at * WIDTH, BATCHES, COUNT, size=3000) for at in range(SEGMENTS)]


@pytest.fixture
def shipped(file_store: ObjectStore, tmp_path: Path, new_id: Callable[[], str]) -> Watched:
    ship(file_store, tmp_path, new_id, *log_bytes())
    return Watched(file_store)


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[TierCache]:
    opened = TierCache(str(tmp_path / "tier-cache"), 100 << 20)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def remote(shipped: Watched, cache: TierCache, executor: ThreadPoolExecutor) -> RemoteLog:
    return RemoteLog(shipped, PREFIX, cache, disk=RealDisk(), executor=executor)


async def read_all(remote: RemoteLog, offset: int = 0, max_bytes: int = 10_000) -> bytes:
    parts = []
    while chunk := await remote.read_chunk(offset, max_bytes):
        parts.append(chunk.data)
        offset = chunk.next_offset
    return b"".join(parts)


@pytest.mark.parametrize("max_bytes", [1, 20_000, 1 << 20])
async def test_reading_on_and_on_gives_the_log_byte_for_byte(remote: RemoteLog, max_bytes: int) -> None:
    assert await read_all(remote, max_bytes=max_bytes) == b"".join(log_bytes())


async def test_a_read_begins_with_the_batch_that_holds_the_offset(remote: RemoteLog) -> None:
    for offset in (0, 1, 4, 5, 7, WIDTH - 1, WIDTH, 2 * WIDTH + 123, SEGMENTS * WIDTH - 1):
        data = await remote.read(offset, 1)
        ((_, header),) = walk(data)
        assert header.base_offset <= offset < header.next_offset


async def test_a_read_gives_whole_batches_up_to_about_max_bytes(remote: RemoteLog) -> None:
    one = len(batch(0, COUNT, size=3000))
    assert len(await remote.read(0, one * 3 + 10)) == one * 3
    assert len(await remote.read(0, 0)) == one
    assert len(await remote.read(WIDTH - COUNT, 1 << 20)) == one, "the object ends there"


async def test_what_is_not_in_the_store_yet_is_no_error(remote: RemoteLog, shipped: Watched) -> None:
    assert await remote.read(SEGMENTS * WIDTH, 100) == b""
    assert await remote.read(SEGMENTS * WIDTH + 1000, 100) == b""


async def test_a_partition_without_a_manifest_is_empty(
    file_store: ObjectStore, cache: TierCache, executor: ThreadPoolExecutor
) -> None:
    remote = RemoteLog(file_store, PREFIX, cache, disk=RealDisk(), executor=executor)
    assert await remote.read(0, 100) == b""
    assert await remote.offset_for_timestamp(0) is None


async def test_what_is_given_up_is_out_of_range(remote: RemoteLog, shipped: Watched) -> None:
    manifest = take_over(shipped, PREFIX, 1, "writer", 0)
    commit(shipped, raise_log_start(successor(manifest, 1, "writer"), WIDTH + 3))
    with pytest.raises(OffsetBelowLogStart) as raised:
        await remote.read(WIDTH + 2, 100)
    assert raised.value.members["log_start"] == WIDTH + 3
    ((_, header),) = walk(await remote.read(WIDTH + 3, 1))
    assert header.base_offset == WIDTH
    assert await remote.offset_for_timestamp(0) == WIDTH + 3
    assert await remote.first_at_or_after(0) == (WIDTH + 3, WIDTH * 10 + 3)


async def test_a_newer_manifest_is_found_when_it_is_needed(
    remote: RemoteLog, shipped: Watched, tmp_path: Path, new_id: Callable[[], str]
) -> None:
    end = SEGMENTS * WIDTH
    assert await remote.read(end, 100) == b""
    more = segment_bytes(end, 2)
    ship(shipped, tmp_path, new_id, more)
    assert await remote.read(end, 1 << 20) == more


async def test_an_adopted_manifest_saves_loading_one(
    remote: RemoteLog, shipped: Watched, tmp_path: Path, new_id: Callable[[], str]
) -> None:
    remote.use_manifest(take_over(shipped, PREFIX, 1, "writer", 0))
    before = shipped.count("list")
    await remote.read(0, 100)
    assert shipped.count("list") == before
    assert remote.statistics().manifest_loads == 0


async def test_a_time_is_found_as_in_the_records(remote: RemoteLog) -> None:
    records = decode(b"".join(log_bytes()))
    for timestamp in (0, 1, 3, 49, 50, 51, 1999, 2000, WIDTH * 10, WIDTH * 10 + 47, records[-1].timestamp):
        expected = next(one for one in records if one.timestamp >= timestamp)
        assert await remote.first_at_or_after(timestamp) == (expected.offset, expected.timestamp)
        found = await remote.offset_for_timestamp(timestamp)
        assert found is not None
        assert found <= expected.offset < found + COUNT
    assert await remote.first_at_or_after(records[-1].timestamp + 1) is None
    assert await remote.offset_for_timestamp(records[-1].timestamp + 1) is None


async def test_folded_entries_are_read_as_well(
    file_store: ObjectStore,
    tmp_path: Path,
    cache: TierCache,
    executor: ThreadPoolExecutor,
    new_id: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "ENTRIES_MAX", 4)
    monkeypatch.setattr(rules, "FOLD_ENTRIES", 3)
    manifest = successor(take_over(file_store, PREFIX, 1, "writer", 0), 1, "writer")
    for at in range(20):
        segment = write_segment(tmp_path, batch(at * 2, 2))
        one = upload_segment(file_store, RealDisk(), PREFIX, Upload(segment, at * 2), 1, new_id)
        manifest = fold_if_due(file_store, append(manifest, one), new_id)
    commit(file_store, manifest)
    assert len(manifest.folded) == 6
    remote = RemoteLog(file_store, PREFIX, cache, disk=RealDisk(), executor=executor)
    for at in range(20):
        assert await remote.read(at * 2 + 1, 1) == batch(at * 2, 2)
        assert await remote.first_at_or_after(at * 20) == (at * 2, at * 20)
    assert await remote.first_at_or_after(1000) is None


# Copies


async def test_readers_of_one_missing_object_share_one_download(remote: RemoteLog, shipped: Watched) -> None:
    answers = await asyncio.gather(*(remote.read(offset, 1) for offset in range(0, WIDTH, 7)))
    assert all(answers)
    keys = [key for method, key in shipped.calls if method == "get" and key.endswith(".log")]
    assert len(keys) == 1


async def test_a_reader_that_leaves_does_not_end_the_download(remote: RemoteLog, shipped: Watched) -> None:
    await remote.read(WIDTH, 1)
    leaving = asyncio.ensure_future(remote.read(0, 1))
    staying = asyncio.ensure_future(remote.read(0, 1))
    while not remote._cache._running:
        await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == batch(0, COUNT, size=3000)


async def test_the_least_recently_read_copy_goes_first(
    shipped: Watched, tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    size = len(log_bytes()[0])
    cache = TierCache(str(tmp_path / "small"), 2 * size + 10)
    await cache.open()
    remote = RemoteLog(shipped, PREFIX, cache, disk=RealDisk(), executor=executor)
    for at in (0, 1, 0, 2):
        await remote.read(at * WIDTH, 1)
    kept = {name[:20] for name in os.listdir(tmp_path / "small")}
    assert kept == {f"{at * WIDTH:020d}" for at in (0, 2)}
    assert cache.statistics().bytes_used == 2 * size
    assert cache.statistics().evictions == 1
    assert await read_all(remote) == b"".join(log_bytes())


@pytest.mark.parametrize("bytes_max", [0, 1000])
async def test_without_room_for_a_copy_ranges_are_read_directly(
    shipped: Watched, tmp_path: Path, executor: ThreadPoolExecutor, bytes_max: int
) -> None:
    cache = TierCache(str(tmp_path / "none"), bytes_max)
    await cache.open()
    remote = RemoteLog(shipped, PREFIX, cache, disk=RealDisk(), executor=executor)
    assert await read_all(remote) == b"".join(log_bytes())
    assert remote.statistics().direct_reads > 0
    assert os.listdir(tmp_path / "none") == []


async def test_a_disk_that_takes_no_copy_does_not_end_reading(remote: RemoteLog, tmp_path: Path) -> None:
    (tmp_path / "tier-cache").rmdir()
    assert await read_all(remote) == b"".join(log_bytes())
    assert remote.statistics().direct_reads > 0


async def test_a_corrupt_object_is_reported_and_not_kept(remote: RemoteLog, shipped: Watched, tmp_path: Path) -> None:
    key = next(one.key for one in shipped.list(PREFIX) if one.key.endswith(".log"))
    spoiled = bytearray(shipped.get(key))
    spoiled[-1] ^= 1
    shipped.put(key, bytes(spoiled))
    with pytest.raises(Corrupt, match="the manifest names"):
        await remote.read(0, 1)
    assert os.listdir(tmp_path / "tier-cache") == []
    assert await remote.read(WIDTH, 1)


async def test_a_copy_that_the_disk_spoils_is_fetched_again(remote: RemoteLog, tmp_path: Path) -> None:
    expected = await remote.read(0, 1 << 20)
    (copy,) = (tmp_path / "tier-cache").iterdir()
    copy.write_bytes(bytes(copy.stat().st_size))
    assert await remote.read(0, 1 << 20) == expected
    copy.unlink()
    assert await remote.read(0, 1 << 20) == expected
    assert remote.statistics().direct_reads == 0


async def test_copies_outlive_a_restart_and_are_checked_once_more(
    remote: RemoteLog, shipped: Watched, tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    expected = await read_all(remote)
    _, second, third = sorted((tmp_path / "tier-cache").iterdir())
    second.write_bytes(bytes(second.stat().st_size))
    third.write_bytes(b"short")
    unfinished, foreign = tmp_path / "tier-cache" / f"{second.name}.part", tmp_path / "tier-cache" / "notes.part"
    for path in (unfinished, foreign):
        path.write_bytes(b"")
    shipped.calls.clear()

    again = TierCache(str(tmp_path / "tier-cache"), 100 << 20)
    await again.open()
    assert again.statistics().objects == 3
    assert await read_all(RemoteLog(shipped, PREFIX, again, disk=RealDisk(), executor=executor)) == expected
    fetched = [key.rpartition("/")[2] for method, key in shipped.calls if method == "get" and key.endswith(".log")]
    assert fetched == [second.name, third.name]
    assert (unfinished.exists(), foreign.exists()) == (False, True)
    assert again.statistics().bytes_used == sum(map(len, log_bytes()))


async def test_a_copy_of_an_earlier_process_is_checked_before_its_path_is_given(
    remote: RemoteLog, shipped: Watched, tmp_path: Path
) -> None:
    await remote.read(0, 1)
    (copy,) = (tmp_path / "tier-cache").iterdir()
    good = copy.read_bytes()
    copy.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    again = TierCache(str(tmp_path / "tier-cache"), 100 << 20)
    await again.open()
    (entry, *_) = take_over(shipped, PREFIX, 1, "writer", 0).entries

    async def fetch(start: int, end: int) -> bytes:
        return good[start:end]

    assert await again.get_or_fetch(entry, fetch) == str(copy)
    assert copy.read_bytes() == good


async def test_a_range_that_is_spoiled_on_the_way_is_not_served(
    shipped: Watched, tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    class Spoiling(Watched):
        def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
            data = super().get(key, start, end)
            return data[:-1] + bytes([data[-1] ^ 1]) if key.endswith(".log") else data

    none = TierCache(str(tmp_path / "none"), 0)
    remote = RemoteLog(Spoiling(shipped), PREFIX, none, disk=RealDisk(), executor=executor)
    with pytest.raises(Corrupt, match="fails its checksum"):
        await remote.read(0, len(batch(0, COUNT, size=3000)))


@pytest.mark.parametrize("spoil", ["absent", "garbage", "another's", "lies"])
async def test_an_aux_object_of_no_use_only_makes_the_walk_longer(
    remote: RemoteLog, shipped: Watched, spoil: str
) -> None:
    first, second, _ = [one.key for one in shipped.list(PREFIX) if one.key.endswith(".aux")]
    if spoil == "absent":
        shipped.delete(first)
    elif spoil == "garbage":
        shipped.put(first, b"garbage")
    elif spoil == "another's":
        shipped.put(first, shipped.get(second))
    else:
        aux = shipped.get(first)
        positions = aux[aux.index(b'"positions":[0,') :].split(b"]")[0]
        wrong = b",".join(b"%d" % (int(one) + 1) if at else one for at, one in enumerate(positions.split(b",")))
        shipped.put(first, aux.replace(positions, wrong))
    assert await read_all(remote) == b"".join(log_bytes())
    assert await remote.first_at_or_after(1501) == (151, 1501)
    assert await remote.first_at_or_after(1505) == (155, 1550)


async def test_objects_that_a_newer_manifest_gave_up_are_out_of_range(remote: RemoteLog, shipped: Watched) -> None:
    await remote.read(2 * WIDTH, 1)
    manifest = take_over(shipped, PREFIX, 1, "writer", 0)
    commit(shipped, raise_log_start(successor(manifest, 1, "writer"), WIDTH))
    shipped.delete(manifest.entries[0].key)
    with pytest.raises(OffsetBelowLogStart):
        await remote.read(0, 1)


async def test_an_object_that_the_manifest_names_but_is_gone_is_corruption(remote: RemoteLog, shipped: Watched) -> None:
    shipped.delete(take_over(shipped, PREFIX, 1, "writer", 0).entries[0].key)
    with pytest.raises(Corrupt, match="the newest manifest lists it"):
        await remote.read(0, 1)


async def test_an_unavailable_store_is_reported_to_every_reader_and_not_cached(
    remote: RemoteLog, shipped: Watched
) -> None:
    await remote.read(WIDTH, 1)
    shipped.decide = lambda number, method, key: FAILS
    answers = await asyncio.gather(*(remote.read(0, 1) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in answers] == [StoreUnavailable] * 3
    assert await remote.read(WIDTH, 1), "what is copied stays readable"
    shipped.decide = lambda number, method, key: None
    assert await remote.read(0, 1)


async def test_the_same_over_s3(
    ministack_store: ObjectStore,
    tmp_path: Path,
    cache: TierCache,
    executor: ThreadPoolExecutor,
    new_id: Callable[[], str],
) -> None:
    ship(ministack_store, tmp_path, new_id, *log_bytes())
    remote = RemoteLog(ministack_store, PREFIX, cache, disk=RealDisk(), executor=executor)
    assert await read_all(remote) == b"".join(log_bytes())
    none = TierCache(str(tmp_path / "none"), 0)
    direct = RemoteLog(ministack_store, PREFIX, none, disk=RealDisk(), executor=executor)
    assert await read_all(direct, max_bytes=200_000) == b"".join(log_bytes())
