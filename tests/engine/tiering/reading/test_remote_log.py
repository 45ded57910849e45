"""Reads from the store return the bytes of the local log, from cached blocks or directly, after any change of the
cache.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.errors import Corrupt, OffsetBelowLogStart
from engine.format.batch import decode, walk
from engine.runtime.disk import RealDisk
from engine.tiering.manifest import manifest as rules
from engine.tiering.manifest.chain import commit, fold_if_due, take_over
from engine.tiering.manifest.manifest import Manifest, append, raise_log_start, successor
from engine.tiering.reading import block_file, object_reader
from engine.tiering.reading import cache as cache_module
from engine.tiering.reading.block_file import BlockFile
from engine.tiering.reading.cache import BlockCache
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
def shipped(file_store, tmp_path, new_id) -> Watched:
    ship(file_store, tmp_path, new_id, *log_bytes())
    return Watched(file_store)


BLOCK = 40_000  # in these tests, so that each object of about 600 kB has many blocks


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    for module in (block_file, cache_module):
        monkeypatch.setattr(module, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(object_reader, "_WINDOW_BYTES", BLOCK // 16)


def opened(path: Path, executor: ThreadPoolExecutor, bytes_max: int = 20_000_000) -> BlockCache:
    cache = BlockCache(BlockFile(RealDisk(), str(path), bytes_max), executor)
    cache.open()
    return cache


@pytest.fixture
def cache(tmp_path, executor) -> BlockCache:
    return opened(tmp_path / "tier-cache" / "blocks", executor)


@pytest.fixture
def remote(shipped, cache, executor) -> RemoteLog:
    return RemoteLog(shipped, PREFIX, cache, executor=executor)


def gets(shipped: Watched) -> int:
    return sum(method == "get" and key.endswith(".log") for method, key in shipped.calls)


async def read_all(remote: RemoteLog, offset: int = 0, max_bytes: int = 10_000) -> bytes:
    parts = []
    while chunk := await remote.read_chunk(offset, max_bytes):
        parts.append(chunk.data)
        offset = chunk.next_offset
    return b"".join(parts)


@pytest.mark.parametrize("max_bytes", [1, 20_000, 1 << 20])
async def test_reading_on_and_on_gives_the_log_byte_for_byte(remote, max_bytes):
    assert await read_all(remote, max_bytes=max_bytes) == b"".join(log_bytes())


async def test_a_read_begins_with_the_batch_that_holds_the_offset(remote):
    for offset in (0, 1, 4, 5, 7, WIDTH - 1, WIDTH, 2 * WIDTH + 123, SEGMENTS * WIDTH - 1):
        data = await remote.read(offset, 1)
        ((_, header),) = walk(data)
        assert header.base_offset <= offset < header.next_offset


async def test_a_read_gives_whole_batches_up_to_about_max_bytes(remote):
    one = len(batch(0, COUNT, size=3000))
    assert len(await remote.read(0, one * 3 + 10)) == one * 3
    assert len(await remote.read(0, 0)) == one
    assert len(await remote.read(WIDTH - COUNT, 1 << 20)) == one, "the object ends there"


async def test_a_partition_without_a_manifest_is_empty(file_store, cache, executor):
    remote = RemoteLog(file_store, PREFIX, cache, executor=executor)
    assert await remote.read(0, 100) == b""
    assert await remote.first_at_or_after(0) is None


async def test_what_is_given_up_is_out_of_range(remote, shipped):
    manifest = take_over(shipped, PREFIX, 1, "writer", 0)
    commit(shipped, raise_log_start(successor(manifest, 1, "writer"), WIDTH + 3))
    with pytest.raises(OffsetBelowLogStart) as raised:
        await remote.read(WIDTH + 2, 100)
    assert raised.value.members["log_start"] == WIDTH + 3
    ((_, header),) = walk(await remote.read(WIDTH + 3, 1))
    assert header.base_offset == WIDTH
    assert await remote.first_at_or_after(0) == (WIDTH + 3, WIDTH * 10 + 3)


async def test_a_newer_manifest_is_found_when_it_is_needed(remote, shipped, tmp_path, new_id):
    end = SEGMENTS * WIDTH
    assert await remote.read(end, 100) == b""
    more = segment_bytes(end, 2)
    ship(shipped, tmp_path, new_id, more)
    assert await remote.read(end, 1 << 20) == more


async def test_an_adopted_manifest_saves_loading_one(remote, shipped, tmp_path, new_id):
    remote.use_manifest(take_over(shipped, PREFIX, 1, "writer", 0))
    before = shipped.count("list")
    await remote.read(0, 100)
    assert shipped.count("list") == before
    assert remote.statistics().manifest_loads == 0


async def test_a_time_is_found_as_in_the_records(remote):
    records = decode(b"".join(log_bytes()))
    for timestamp in (0, 1, 3, 49, 50, 51, 1999, 2000, WIDTH * 10, WIDTH * 10 + 47, records[-1].timestamp):
        expected = next(one for one in records if one.timestamp >= timestamp)
        assert await remote.first_at_or_after(timestamp) == (expected.offset, expected.timestamp)
    assert await remote.first_at_or_after(records[-1].timestamp + 1) is None


async def test_folded_entries_are_read_as_well(file_store, tmp_path, cache, executor, new_id, monkeypatch):
    monkeypatch.setattr(rules, "ENTRIES_MAX", 4)
    monkeypatch.setattr(rules, "FOLD_ENTRIES", 3)
    manifest = successor(take_over(file_store, PREFIX, 1, "writer", 0), 1, "writer")
    for at in range(20):
        segment = write_segment(tmp_path, batch(at * 2, 2))
        one = upload_segment(file_store, RealDisk(), PREFIX, Upload(segment, at * 2), 1, new_id)
        manifest = fold_if_due(file_store, append(manifest, one), new_id)
    commit(file_store, manifest)
    assert len(manifest.folded) == 6
    remote = RemoteLog(file_store, PREFIX, cache, executor=executor)
    for at in range(20):
        assert await remote.read(at * 2 + 1, 1) == batch(at * 2, 2)
        assert await remote.first_at_or_after(at * 20) == (at * 2, at * 20)
    assert await remote.first_at_or_after(1000) is None


# Blocks


async def test_a_read_of_one_record_does_not_fetch_the_object(remote):
    await remote.read(WIDTH + 77, 1)
    seen = remote._cache.statistics()
    assert seen.misses <= 3, "up to 64 KiB to walk from the index, and a batch that crosses a border"
    assert seen.read_ahead <= 2


async def test_readers_of_one_missing_block_share_one_request(shipped, cache, executor):
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Watched):
        def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
            if key.endswith(".log"):
                entered.set()
                assert go_on.wait(60)
            return super().get(key, start, end)

    slow = Slow(shipped)
    remote = RemoteLog(slow, PREFIX, cache, executor=executor)
    leaving = asyncio.ensure_future(remote.read(1, 1))
    while not entered.is_set():
        await asyncio.sleep(0.001)
    staying = [asyncio.ensure_future(remote.read(offset, 1)) for offset in (0, 2)]
    leaving.cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert await asyncio.gather(*staying) == [batch(0, COUNT, size=3000)] * 2
    assert gets(slow) <= 2, "the block, and one ahead"


async def test_reading_on_fetches_blocks_ahead(shipped, cache, executor):
    class AtOnce(ThreadPoolExecutor):
        def submit(self, function, /, *args, **kwargs):  # type: ignore[no-untyped-def,override]
            function(*args, **kwargs)

    cache._executor = AtOnce(1)
    remote = RemoteLog(shipped, PREFIX, cache, executor=executor)
    assert await read_all(remote) == b"".join(log_bytes())
    seen = cache.statistics()
    assert seen.misses < 3 * SEGMENTS
    assert seen.misses + seen.read_ahead == sum(-(-len(one) // BLOCK) for one in log_bytes()), "each block once"
    assert gets(shipped) < (seen.misses + seen.read_ahead) / 2


@pytest.mark.parametrize("bytes_max", [0, 1000])
async def test_without_room_for_blocks_the_store_is_read(shipped, tmp_path, executor, bytes_max):
    remote = RemoteLog(shipped, PREFIX, opened(tmp_path / "none", executor, bytes_max), executor=executor)
    assert await read_all(remote) == b"".join(log_bytes())
    assert not (tmp_path / "none").exists()


async def test_a_place_that_takes_no_file_does_not_end_reading(shipped, tmp_path, executor):
    (tmp_path / "target").write_bytes(b"a foreign file")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "directory").mkdir()
    for name in ("link", "directory", "target/below"):
        remote = RemoteLog(shipped, PREFIX, opened(tmp_path / name, executor), executor=executor)
        assert await read_all(remote) == b"".join(log_bytes())
    assert (tmp_path / "target").read_bytes() == b"a foreign file"


@pytest.mark.parametrize("at", [-1, 5, 11], ids=["a value", "a base offset", "the length of a batch"])
async def test_a_corrupt_object_is_reported_until_it_is_replaced(remote, shipped, at):
    key = next(one.key for one in shipped.list(PREFIX) if one.key.endswith(".log"))
    good = shipped.get(key)
    spoiled = bytearray(good)
    spoiled[at] ^= 1
    shipped.put(key, bytes(spoiled))
    wanted = WIDTH - 1 if at < 0 else 0
    with pytest.raises(Corrupt):
        await remote.read(wanted, 1)
    assert await remote.read(WIDTH, 1)
    shipped.put(key, good)
    assert await remote.read(wanted, 1) == batch(wanted // COUNT * COUNT, COUNT, size=3000)


async def test_a_block_that_the_disk_spoils_is_fetched_again(remote, shipped, tmp_path, executor):
    assert await read_all(remote) == b"".join(log_bytes())
    path = tmp_path / "tier-cache" / "blocks"
    stored = path.read_bytes()
    for spoiled in (bytes(len(stored)), b"", stored[: len(stored) // 2], stored[:9000] + bytes(len(stored) - 9000)):
        path.write_bytes(spoiled)
        again = RemoteLog(shipped, PREFIX, opened(path, executor), executor=executor)
        assert await read_all(again) == b"".join(log_bytes())
        assert again.statistics().direct_reads == 0


async def test_blocks_outlive_a_restart_and_serve_other_processes(remote, shipped, tmp_path, executor):
    one_shard = await read_all(remote)
    executor.submit(lambda: None).result()
    other = opened(tmp_path / "tier-cache" / "blocks", executor)
    assert await read_all(RemoteLog(shipped, PREFIX, other, executor=executor)) == one_shard
    before = gets(shipped)
    third = opened(tmp_path / "tier-cache" / "blocks", executor)
    assert await read_all(RemoteLog(shipped, PREFIX, third, executor=executor)) == one_shard
    assert gets(shipped) == before
    assert third.statistics().misses == 0


async def test_a_closed_cache_still_reads(remote, cache):
    await remote.read(0, 1)
    cache.close()
    assert await read_all(remote) == b"".join(log_bytes())


async def test_a_range_that_is_spoiled_on_the_way_is_not_served(shipped, tmp_path, executor):
    class Spoiling(Watched):
        def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
            data = super().get(key, start, end)
            return data[:-1] + bytes([data[-1] ^ 1]) if key.endswith(".log") else data

    remote = RemoteLog(Spoiling(shipped), PREFIX, opened(tmp_path / "none", executor, 0), executor=executor)
    with pytest.raises(Corrupt, match="fails its checksum"):
        await remote.read(WIDTH - 1, 1)


@pytest.mark.parametrize("spoil", ["absent", "garbage", "another's", "lies"])
async def test_an_aux_object_of_no_use_only_makes_the_walk_longer(remote, shipped, spoil):
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


async def test_objects_that_a_newer_manifest_gave_up_are_out_of_range(remote, shipped):
    await remote.read(2 * WIDTH, 1)
    manifest = take_over(shipped, PREFIX, 1, "writer", 0)
    commit(shipped, raise_log_start(successor(manifest, 1, "writer"), WIDTH))
    shipped.delete(manifest.entries[0].key)
    with pytest.raises(OffsetBelowLogStart):
        await remote.read(0, 1)


async def test_an_object_that_the_manifest_names_but_is_gone_is_corruption(remote, shipped):
    shipped.delete(take_over(shipped, PREFIX, 1, "writer", 0).entries[0].key)
    with pytest.raises(Corrupt, match="the newest manifest lists it"):
        await remote.read(0, 1)


async def test_an_unavailable_store_is_reported_to_every_reader_and_not_cached(remote, shipped):
    await remote.read(WIDTH, 1)
    shipped.decide = lambda number, method, key: FAILS
    answers = await asyncio.gather(*(remote.read(0, 1) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in answers] == [StoreUnavailable] * 3
    assert await remote.read(WIDTH, 1), "cached blocks stay readable"
    shipped.decide = lambda number, method, key: None
    assert await remote.read(0, 1)


async def test_the_same_over_s3(ministack_store, tmp_path, cache, executor, new_id):
    ship(ministack_store, tmp_path, new_id, *log_bytes())
    remote = RemoteLog(ministack_store, PREFIX, cache, executor=executor)
    assert await read_all(remote) == b"".join(log_bytes())
    direct = RemoteLog(ministack_store, PREFIX, opened(tmp_path / "none", executor, 0), executor=executor)
    assert await read_all(direct, max_bytes=200_000) == b"".join(log_bytes())
