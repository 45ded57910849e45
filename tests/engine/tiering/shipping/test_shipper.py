"""Shipping: every sealed segment is stored once and in order, after any failure, lost answer, cancellation or crash."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from engine.errors import Corrupt
from engine.format.paths import store_manifest_key
from engine.runtime.disk import RealDisk
from engine.tiering.manifest.chain import load_newest
from engine.tiering.manifest.manifest import NotContiguous
from engine.tiering.shipping.garbage_collection import GRACE_MS
from engine.tiering.shipping.plan import Upload
from engine.tiering.shipping.shipper import ShipperOptions
from engine.tiering.shipping.upload import upload_segment
from engine.tiering.store.store import StoreUnavailable, open_store
from tests.engine.tiering.making import PREFIX, local_log, segment_bytes, write_segment
from tests.engine.tiering.shipping_scene import QUICK, WIDTH, Source, check_store, newest, sealed
from tests.engine.tiering.stores import FAILS, LOSES, Watched


async def test_what_is_sealed_and_committed_is_shipped(store, tmp_path, make):
    segments = sealed(tmp_path, 3)
    source = Source(local_log(segments, high_watermark=2 * WIDTH + 1))
    shipper = make(store, source)
    await shipper.ship_once()
    check_store(store, segments[:2])
    assert source.reported == [0, WIDTH, 2 * WIDTH]
    source.local = local_log(segments)
    await shipper.ship_once()
    check_store(store, segments)
    found = shipper.statistics()
    assert (found.state, found.tiered_end, found.objects, found.last_error) == ("idle", 3 * WIDTH, 3, None)
    assert found.tiered_bytes == found.shipped_bytes == sum(one.size_bytes for one in segments)


async def test_what_is_pending_is_of_the_moment_of_the_end(file_store, tmp_path, make):
    seen: list[tuple[int | None, int]] = []

    class Asked(Source):
        async def on_tiered(self, end_offset: int) -> None:
            found = shipper.statistics()
            seen.append((found.tiered_end, found.pending_segments))

    shipper = make(file_store, Asked(local_log(sealed(tmp_path, 2))))
    await shipper.ship_once()
    assert seen == [(0, 2), (WIDTH, 1), (2 * WIDTH, 0)]


async def test_a_pass_without_changes_does_not_call_the_store(file_store, tmp_path, make):
    watched = Watched(file_store)
    quiet = make(watched, Source(local_log([])))
    await quiet.ship_once()
    watched.calls.clear()
    await quiet.ship_once()
    busy = make(watched, Source(local_log(sealed(tmp_path, 1))))
    await busy.ship_once()
    watched.calls.clear()
    await busy.ship_once()
    assert watched.calls == []
    assert quiet.statistics().tiered_end is None


async def test_after_a_restart_nothing_is_shipped_again(file_store, tmp_path, make):
    segments = sealed(tmp_path, 3)
    await make(file_store, Source(local_log(segments))).ship_once()
    source = Source(local_log(segments))
    again = make(file_store, source)
    before = [*file_store.list("")]
    await again.ship_once()
    assert [*file_store.list("")] == before
    assert source.reported == [3 * WIDTH], "the log learns after a restart what it may delete"
    assert again.statistics().shipped_segments == 0


async def test_a_new_leader_continues_inside_a_segment(file_store, tmp_path, make):
    """Replicas roll at different offsets: the new leader's segment overlaps what the old one shipped."""
    await make(file_store, Source(local_log(sealed(tmp_path, 1)))).ship_once()
    whole = write_segment(tmp_path, segment_bytes(0, batches=7, size=300))
    await make(file_store, Source(local_log([whole])), epoch=2).ship_once()
    first, second = newest(file_store).entries
    assert (first.end_offset, second.base_offset, second.end_offset) == (WIDTH, WIDTH, 21)
    assert file_store.get(first.key) + file_store.get(second.key) == Path(whole.path).read_bytes()


async def test_a_log_whose_batches_lie_otherwise_than_the_stores_is_halted(file_store, tmp_path, make):
    await make(file_store, Source(local_log(sealed(tmp_path, 1)))).ship_once()
    other = write_segment(tmp_path, segment_bytes(0, batches=4, count=5))
    with pytest.raises(NotContiguous, match="the local log does not continue the log in the store"):
        await make(file_store, Source(local_log([other])), epoch=2).ship_once()


@pytest.mark.parametrize(
    ("first", "positions", "reason"),
    [(2, {"log_start": 0}, "the local log begins at 24"), (0, {"log_end": 6}, "the store ends at 12, the log at 6")],
)
async def test_a_halt_is_reported_and_ends_after_the_repair(
    file_store, tmp_path, make, caplog, first, positions, reason
):
    segments = sealed(tmp_path, 3)
    await make(file_store, Source(local_log(segments[:1]))).ship_once()
    source = Source(local_log(segments[first:], **positions))
    shipper = make(file_store, source)
    await shipper.ship_once()
    await shipper.ship_once()
    (logged,) = (entry for entry in caplog.records if entry.levelno == logging.ERROR)
    assert reason in logged.reason
    found = shipper.statistics()
    assert found.state == "halted"
    assert found.last_error is not None
    assert reason in found.last_error
    assert source.reported == ([WIDTH] if first else []), "what a lost log never had is not reported to it"
    source.local = local_log(segments)
    await shipper.ship_once()
    assert (shipper.statistics().state, shipper.statistics().last_error) == ("idle", None)
    check_store(file_store, segments)


async def test_a_log_that_lacks_its_begin_is_halted_though_the_store_has_nothing(file_store, tmp_path, make, caplog):
    """Before the fix nothing was logged: records from 0 on are missing here and in the store."""
    segments = sealed(tmp_path, 3)
    shipper = make(file_store, source := Source(local_log(segments[1:], log_start=0)))
    await shipper.ship_once()
    await shipper.ship_once()
    (logged,) = (entry for entry in caplog.records if entry.levelno == logging.ERROR)
    assert f"the local log begins at {WIDTH}" in logged.reason
    assert shipper.statistics().state == "halted"
    assert load_newest(file_store, PREFIX) is None
    source.local = local_log(segments)
    await shipper.ship_once()
    assert (shipper.statistics().state, shipper.statistics().last_error) == ("idle", None)
    check_store(file_store, segments)


async def test_a_corrupt_segment_never_leaves(file_store, tmp_path, make):
    segments = sealed(tmp_path, 3)
    path = Path(segments[1].path)
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    shipper = make(file_store, Source(local_log(segments)))
    with pytest.raises(Corrupt, match="fails its checksum"):
        await shipper.ship_once()
    check_store(file_store, segments[:1])
    path.write_bytes(good)
    await shipper.ship_once()
    check_store(file_store, segments)


async def test_raising_log_start_gives_up_objects_in_the_store(file_store, tmp_path, make):
    segments = sealed(tmp_path, 4)
    source = Source(local_log(segments[:3]))
    shipper = make(file_store, source)
    await shipper.ship_once()
    generation = newest(file_store).generation
    source.local = local_log(segments[1:3], log_start=WIDTH - 1)
    await shipper.ship_once()
    assert newest(file_store).generation == generation, "no object is freed yet"
    source.local = local_log(segments[1:3], log_start=WIDTH + 2)
    await shipper.ship_once()
    assert newest(file_store).log_start == WIDTH + 2
    check_store(file_store, segments[1:3])
    source.local = local_log(segments[3:], log_start=3 * WIDTH + 1)
    await shipper.ship_once()
    check_store(file_store, segments[3:])
    assert newest(file_store).log_start == 3 * WIDTH + 1


# The running driver


async def test_run_ships_on_a_wake_and_outlives_failures(file_store, tmp_path, make):
    segments = sealed(tmp_path, 2)
    store = Watched(file_store)
    source = Source(local_log(segments[:1]))
    shipper = make(store, source, options=replace(QUICK, idle_seconds=1000))
    running = asyncio.ensure_future(shipper.run())
    async with asyncio.timeout(60):
        while not source.reported or source.reported[-1] < WIDTH:
            await asyncio.sleep(0.001)
        source.local = local_log(segments)
        store.decide = lambda number, method, key: FAILS
        shipper.wake()
        while shipper.statistics().failures < 3:
            await asyncio.sleep(0.001)
        found = shipper.statistics()
        assert found.state == "backing off"
        assert "fails by design" in str(found.last_error)
        assert (found.pending_segments, found.pending_bytes) == (1, segments[1].size_bytes)
        store.decide = lambda number, method, key: None
        while source.reported[-1] < 2 * WIDTH:
            await asyncio.sleep(0.001)
    assert shipper.statistics().failures == 0
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    check_store(file_store, segments)


async def test_a_segment_that_vanished_is_planned_again(file_store, tmp_path, make):
    segments = sealed(tmp_path, 2)
    Path(segments[0].path).unlink()
    source = Source(local_log(segments))
    shipper = make(file_store, source)
    with pytest.raises(FileNotFoundError):
        await shipper.ship_once()
    source.local = local_log(segments[1:], log_start=0)
    await shipper.ship_once()
    assert shipper.statistics().state == "halted"
    source.local = local_log(segments[1:])
    await shipper.ship_once()
    assert shipper.statistics().state == "idle", "a raised log_start has given the segment up"
    check_store(file_store, segments[1:])


def test_backoff_doubles_up_to_its_bound_and_varies(file_store, make):
    shipper = make(file_store, Source(local_log([])), options=ShipperOptions())
    waits = []
    for _ in range(12):
        shipper._failures += 1
        waits.append(shipper._backoff_seconds())
    for at, wait in enumerate(waits):
        longest = min(60.0, 0.5 * 2**at)
        assert longest / 2 <= wait <= longest
    assert len({*waits}) == len(waits)


async def test_roots_and_orphans_are_cleaned_up_in_time(file_store, tmp_path, make):
    segments = sealed(tmp_path, 6)
    orphan = PREFIX + "00000000000000000000-1-left.log"
    file_store.put(orphan, b"")
    source = Source(local_log(segments[:3]))
    shipper = make(file_store, source, options=replace(QUICK, commits_between_cleanings=2))
    await shipper.ship_once()
    assert file_store.head(orphan)
    assert file_store.head(store_manifest_key(PREFIX, 1))
    shipper.clock.ms += 3 * GRACE_MS  # type: ignore[attr-defined]
    source.local = local_log(segments)
    await shipper.ship_once()
    assert file_store.head(orphan) is None
    assert [one.key for one in file_store.list(PREFIX + "manifest/0")] == [store_manifest_key(PREFIX, 7)]
    check_store(file_store, segments)


# Verification


async def test_what_the_store_spoils_is_sent_again(file_store, tmp_path, make):
    class Spoiling(Watched):
        def put_file(self, key: str, path: str, **kwargs: object) -> None:
            super().put_file(key, path, **kwargs)
            if self.count("put_file") == 1:
                data = self.inner.get(key)
                self.inner.put(key, data[:-1] + bytes([data[-1] ^ 1]))

    segments = sealed(tmp_path, 1)
    shipper = make(Spoiling(file_store), Source(local_log(segments)))
    with pytest.raises(StoreUnavailable, match=r"in .* differs from the upload"):
        await shipper.ship_once()
    await shipper.ship_once()
    check_store(file_store, segments)


def test_an_upload_whose_answer_was_lost_is_not_sent_again(file_store, tmp_path, new_id):
    (segment,) = sealed(tmp_path, 1)
    store = Watched(file_store, lambda number, method, key: LOSES if method == "put_file" else None)
    entry = upload_segment(store, RealDisk(), PREFIX, Upload(segment, 0), 1, new_id)
    assert store.count("put_file") == 1
    assert {one.key for one in file_store.list("")} == {entry.key, entry.aux_key}


def test_a_directory_that_took_the_right_bytes_is_not_read_back(tmp_path, new_id):
    (segment,) = sealed(tmp_path, 1)
    watched = Watched(open_store(f"file://{tmp_path}/store"))
    entry = upload_segment(watched, RealDisk(), PREFIX, Upload(segment, 0), 1, new_id)
    assert watched.count("get") == watched.count("head") == 0
    assert crc32c(watched.inner.get(entry.key)) == entry.crc32c


def test_a_checked_checksum_saves_reading_back(ministack_store, tmp_path, new_id):
    (segment,) = sealed(tmp_path, 1)
    watched = Watched(ministack_store)
    upload_segment(watched, RealDisk(), PREFIX, Upload(segment, 0), 1, new_id)
    assert watched.count("get") == 1, "not probed: read back"
    ministack_store.probe()
    watched.calls.clear()
    upload_segment(watched, RealDisk(), PREFIX, Upload(segment, 0), 1, new_id)
    assert watched.count("get") == 0
