"""Every kind of damage, read in every form: no record is omitted without a `records_damaged` problem at its offset."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import pytest

from tests.missing_files.damaged_log import (
    END,
    FORMS,
    PER_SEGMENT,
    DamagedLog,
    batches_of,
    opened,
    rewrite,
    shippable,
    touched,
)

SEGMENT = 1  # sealed, with neighbours on both sides


@pytest.fixture
def directory(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "node"))


def segment_file(directory: Path, number: int = SEGMENT, suffix: str = ".log") -> Path:
    (path,) = directory.glob(f"data/topics/t/*/0/{number * PER_SEGMENT:020d}{suffix}")
    return path


def cut_at_a_boundary(good: bytes) -> tuple[bytes, set[int]]:
    position = batches_of(good)[5][0]
    return good[:position], touched(good, position, len(good))


def cut_inside_a_batch(good: bytes) -> tuple[bytes, set[int]]:
    position = batches_of(good)[5][0] + 70
    return good[:position], touched(good, position, len(good))


def emptied(good: bytes) -> tuple[bytes, set[int]]:
    return b"", touched(good, 0, len(good))


def length_flipped(good: bytes) -> tuple[bytes, set[int]]:
    position = batches_of(good)[4][0]
    return _flipped(good, position + 10), touched(good, position, position + 1)


def offset_flipped(good: bytes) -> tuple[bytes, set[int]]:
    position = batches_of(good)[4][0]
    return _flipped(good, position + 7), touched(good, position, position + 1)


def record_flipped(good: bytes) -> tuple[bytes, set[int]]:
    position = batches_of(good)[2][0] + 200
    return _flipped(good, position), touched(good, position, position + 1)


def first_batch_flipped(good: bytes) -> tuple[bytes, set[int]]:
    return _flipped(good, 9), touched(good, 0, 1)


def last_batch_flipped(good: bytes) -> tuple[bytes, set[int]]:
    return _flipped(good, len(good) - 1), touched(good, len(good) - 1, len(good))


def several_runs(good: bytes) -> tuple[bytes, set[int]]:
    places = [batches_of(good)[number][0] + 100 for number in (0, 3, 4, 7)]
    data = good
    for place in places:
        data = _flipped(data, place)
    return data, set().union(*(touched(good, place, place + 1) for place in places))


def grown(good: bytes) -> tuple[bytes, set[int]]:
    return good + b"\0" * 500, set()


def _flipped(data: bytes, at: int) -> bytes:
    return bytes([*data[:at], data[at] ^ 0x04, *data[at + 1 :]])


KINDS = [
    cut_at_a_boundary,
    cut_inside_a_batch,
    emptied,
    length_flipped,
    offset_flipped,
    record_flipped,
    first_batch_flipped,
    last_batch_flipped,
    several_runs,
    grown,
]


async def assert_reported(log: DamagedLog, damaged: set[int], *forms: str) -> None:
    for form in forms or FORMS:
        reading = await log.read_all(form)
        assert reading.offsets_refused == damaged, form
        assert reading.found == set(range(END)) - damaged, form


@pytest.mark.parametrize(
    ("kind", "when"),
    [
        *((kind, when) for kind in KINDS for when in ("running", "restarted")),
        *((kind, "scrubbed") for kind in (cut_at_a_boundary, several_runs)),
    ],
)
async def test_exactly_the_damaged_records_are_refused_in_every_form(directory, kind, when, caplog):
    path = segment_file(directory)
    bad, damaged = kind(path.read_bytes())
    if when == "restarted":
        rewrite(path, bad)
    async with opened(directory) as log:
        if when != "restarted":
            rewrite(path, bad)
        if when == "scrubbed":
            await log.scrub()
        with caplog.at_level(logging.ERROR):
            await assert_reported(log, damaged, *(("batches", "events", "follower") if when == "restarted" else ()))
        runs = len(log.partition.log.segments[SEGMENT].damage)
        logged = [record for record in caplog.records if "damaged records" in record.message]
        assert len(logged) == runs, "each run of damage is logged once"
        if kind is not grown:
            assert shippable(log) == {0, 2}
    async with opened(directory) as log:  # the damage is known from here on
        await assert_reported(log, damaged, "json")


@pytest.mark.parametrize("numbers", [(1,), (1, 2)])
@pytest.mark.parametrize("suffixes", [(".log",), (".log", ".index", ".timeindex", ".checksum")])
async def test_a_segment_that_is_missing_at_the_start_is_refused_and_then_taken_from_the_store(
    directory, suffixes, numbers, caplog
):
    async with opened(directory) as log:
        await log.tiered()
    good = {}
    for number in numbers:
        good[number] = segment_file(directory, number).read_bytes()
        for suffix in suffixes:
            segment_file(directory, number, suffix).unlink()
    missing = set(range(numbers[0] * PER_SEGMENT, (numbers[-1] + 1) * PER_SEGMENT))
    async with opened(directory) as log:
        await assert_reported(log, missing, "json", "batches", "events")
        await log.scrub()
        assert "the store has no such range" in caplog.text
        await assert_reported(log, missing, "follower")
    async with opened(directory) as log:
        await log.scrub(log.from_store())
        await assert_reported(log, set(), "json", "batches", "events", "follower")
        assert not any(segment.damage for segment in log.partition.log.segments)
    found = b"".join(path.read_bytes() for path in sorted(segment_file(directory, 0).parent.glob("*.log"))[1:-1])
    assert found.startswith(b"".join(good.values()))


def give_up_store(directory: Path) -> None:
    """Without the file of its identity, since a start refuses a store that is gone."""
    shutil.rmtree(directory / "data/store", ignore_errors=True)
    (directory / "data/store-identities").unlink(missing_ok=True)


async def test_first_segments_that_are_missing_come_from_the_store_or_are_refused(directory):
    async with opened(directory) as log:
        await log.tiered()
    for suffix in (".log", ".index", ".timeindex", ".checksum"):
        segment_file(directory, 0, suffix).unlink()
    async with opened(directory) as log:
        await assert_reported(log, set(), "json", "events")
    give_up_store(directory)
    async with opened(directory) as log:
        await assert_reported(log, set(range(PER_SEGMENT)), "json", "batches", "fetch", "events")


@pytest.mark.parametrize("kind", [length_flipped, record_flipped, last_batch_flipped, cut_at_a_boundary])
@pytest.mark.parametrize("how", ["read", "rolled"])
async def test_damage_in_the_active_segment_is_found_by_a_read_and_by_sealing(directory, kind, how, caplog):
    async with opened(directory) as log:
        path = segment_file(directory, 3)
        bad, damaged = kind(path.read_bytes())
        rewrite(path, bad)
        if how == "rolled":
            await log.gateway.send("POST", "/v1/topics/t/roll")
            await log.shard.sealer.wait_saved(log.partition)
            assert "damaged records were quarantined" in caplog.text
            assert not path.with_suffix(".checksum").exists()
        await assert_reported(log, damaged, *(("batches", "events") if how == "read" else ("json",)))
        await log.scrub()
        assert not path.with_suffix(".checksum").exists()
        assert shippable(log) == {0, 1, 2}
    async with opened(directory) as log:
        await assert_reported(log, damaged, "json")


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("kind", [cut_at_a_boundary, emptied, record_flipped])
async def test_a_search_by_time_reports_damage_that_may_hold_what_is_searched(directory, kind, has_index):
    path = segment_file(directory)
    bad, damaged = kind(path.read_bytes())
    rewrite(path, bad)
    if not has_index:
        path.with_suffix(".index").unlink()
    async with opened(directory) as log:
        await log.read_all("batches")  # a read finds the damage first
        first, end = min(damaged), max(damaged) + 1
        for offset in (*range(0, first, 5), *sorted(damaged), end, end + 1, END - 1):
            answer = await log.get(f"/v1/topics/t/partitions/0/offsets?timestamp={1000 * offset}", "application/json")
            is_near = end <= offset < end + 2  # before the next entry of the time index
            if offset in damaged or (is_near and answer.status != 200):
                assert answer.status == 500
                assert (answer.json["damaged_from"], answer.json["damaged_end"]) == (first, end)
            else:
                assert answer.json["offset"] == offset


async def test_a_search_by_time_does_not_skip_the_first_segment_if_it_is_missing(directory):
    """No file notes it: after local retention the log begins there too, but the store has the records."""
    segment_file(directory, 0).unlink()
    give_up_store(directory)
    async with opened(directory) as log:
        for timestamp in (0, 5000, PER_SEGMENT * 1000):
            path = f"/v1/topics/t/partitions/0/offsets?timestamp={timestamp}"
            answer = await log.get(path, "application/json")
            logged = (answer.status, answer.json.get("damaged_from"), answer.json.get("damaged_end"))
            assert logged == (500, 0, PER_SEGMENT), timestamp
        path = f"/v1/topics/t/partitions/0/offsets?timestamp={(PER_SEGMENT + 1) * 1000}"
        assert (await log.get(path, "application/json")).json["offset"] == PER_SEGMENT + 1


async def test_a_first_segment_that_is_missing_here_and_in_the_store_is_logged_once_after_the_start(directory, caplog):
    segment_file(directory, 0).unlink()
    give_up_store(directory)
    async with opened(directory), asyncio.timeout(60):
        while not (logged := [record for record in caplog.records if hasattr(record, "prefix")]):
            await asyncio.sleep(0.01)
    (error,) = logged
    assert error.levelname == "ERROR"
    assert error.reason.startswith(f"the store ends at 0, the local log begins at {PER_SEGMENT}")


async def test_a_search_by_time_finds_what_nobody_has_noted_yet(directory):
    rewrite(segment_file(directory), b"")
    async with opened(directory) as log:
        path = f"/v1/topics/t/partitions/0/offsets?timestamp={1000 * (PER_SEGMENT + 1)}"
        answer = await log.get(path, "application/json")
        assert (answer.status, answer.json["damaged_from"]) == (500, PER_SEGMENT)
