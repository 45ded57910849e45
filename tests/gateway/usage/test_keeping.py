"""What is counted is found once: over kills, edges of hours, full disks, repeated sealing and odd files."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.runtime.disk import RealDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from engine.tiering.store.file_store import FileStore
from engine.tiering.store.store import StoreUnavailable
from gateway.usage.keeper import KEPT_HOURS, SEAL_AFTER_MS
from gateway.usage.meters import HOUR_MS, Usage
from tests.gateway.usage.counted import HOUR, IDENTITY, MovedClock, Process

LATE = SEAL_AFTER_MS / HOUR_MS


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


async def test_each_status_counts_as_what_it_is(tmp_path, clock):
    process = Process(tmp_path, clock)
    process.request("acme", "produce_many", stored=3)
    process.request("acme", "fetch", stored=0)
    process.request("acme", "describe_topic", 304, size=0, stored=0)
    process.request("acme", status=429, stored=0)
    process.request("acme", status=500)
    process.request("bolt")
    process.counting.count_bytes_out("acme", "tail_topic", 7, clock.seconds)
    process.counting.count_records("acme", 2, clock.seconds)
    process.counting.count_stored("acme", 2**62, clock.seconds)
    assert await process.total("acme") == Usage(
        *(1, 10, 20, 5), *(1, 10, 27), *(1, 0, 0), *(1, 10, 20), *(1, 2**62)
    )  # fmt: skip
    assert await process.total("bolt") == Usage(1, 10, 20, 1)
    assert await process.total("none") == Usage()


async def test_what_was_counted_before_a_kill_is_there_after_it(tmp_path, clock):
    for restarts in range(5):
        process = Process(tmp_path, clock)
        process.request("acme")
        assert (await process.total("acme")).produce_requests == restarts + 1


async def test_an_hour_ends_at_its_edge_and_not_at_the_next_tick(tmp_path, clock):
    process = Process(tmp_path, clock)
    clock.at(HOUR + 0.9999)
    process.request("acme")
    clock.at(HOUR + 1)
    process.request("acme", size=1)
    here = await process.here("acme")
    assert {one.hour: one.usage.produce_bytes_in for one in here.counted} == {HOUR: 10, HOUR + 1: 1}
    assert here.open_hours == [HOUR, HOUR + 1]


async def test_the_file_of_the_next_hour_is_made_before_it_begins(tmp_path, clock):
    process = Process(tmp_path, clock)
    process.request("acme")
    clock.at(HOUR + 1 - 10 / 3600)
    await process.keeper.tick()
    names = process.files()
    assert [name[:10] for name in names] == [f"{HOUR:010d}", f"{HOUR + 1:010d}"]
    clock.at(HOUR + 1)
    process.request("acme")
    await process.keeper.tick()
    assert process.files() == names


async def test_a_clock_that_is_set_back_and_forth_loses_nothing(tmp_path, clock):
    process = Process(tmp_path, clock)
    for hour in (HOUR, HOUR + 5, HOUR + 5.5, HOUR, HOUR - 3):
        clock.at(hour)
        await process.keeper.tick()
        process.request("acme")
    assert {one.hour for one in (await process.here("acme")).counted} == {HOUR, HOUR + 5, HOUR - 3}
    clock.at(HOUR + 9)
    await process.keeper.tick()
    await process.keeper.seal()
    assert process.files() == []
    assert (await process.total("acme")).produce_requests == 5


async def test_an_hour_is_sealed_ten_minutes_after_its_end(tmp_path, clock):
    process = Process(tmp_path, clock)
    process.request("acme")
    process.request("bolt", "fetch")
    before = await process.total("acme")
    clock.at(HOUR + 1 + LATE - 0.001)
    await process.keeper.tick()
    await process.keeper.seal()
    assert process.objects() == {}
    clock.at(HOUR + 1 + LATE)
    await process.keeper.seal()
    ((key, data),) = process.objects().items()
    assert key.startswith(f"c1/__usage/{HOUR:010d}/1-0-")
    assert orjson.loads(data)["tenants"].keys() == {"acme", "bolt"}
    assert process.files() == []
    assert await process.total("acme") == before
    assert (await process.here("acme")).open_hours == []


async def test_sealing_again_after_a_kill_changes_nothing(tmp_path, clock):
    process = Process(tmp_path, clock, disk=FaultyDisk(RealDisk(), [Rule("unlink", error=errno.EIO, times=None)]))
    process.request("acme")
    before = await process.total("acme")
    clock.at(HOUR + 2)
    await process.keeper.tick()
    await process.keeper.seal()
    objects = process.objects()
    assert len(objects) == len(process.files()) == 1
    assert await process.total("acme") == before
    again = Process(tmp_path, clock)
    await again.keeper.seal()
    assert (again.objects(), again.files()) == (objects, [])
    assert await again.total("acme") == before


async def test_an_object_with_other_counts_is_reported_and_the_file_stays(tmp_path, clock):
    process = Process(tmp_path, clock, disk=FaultyDisk(RealDisk(), [Rule("unlink", error=errno.EIO)]))
    process.request("acme")
    clock.at(HOUR + 2)
    await process.keeper.tick()
    await process.keeper.seal()
    ((key, data),) = process.objects().items()
    process.store.put(key, data.replace(b":10,", b":11,"))
    await process.keeper.seal()
    assert len(process.files()) == 1
    assert (await process.here("acme")).unreadable == 1


async def test_a_node_that_was_down_seals_its_hours_late_and_once(tmp_path, clock):
    killed = Process(tmp_path, clock)
    killed.request("acme")
    clock.at(HOUR + 100)
    again = Process(tmp_path, clock)
    assert (await again.here("acme")).open_hours == [HOUR]
    again.request("acme")
    await again.keeper.seal()
    assert (await again.here("acme")).open_hours == [HOUR + 100]
    assert (await again.total("acme")).produce_requests == 2


async def test_the_first_shard_seals_the_files_of_shards_that_are_gone(tmp_path, clock):
    shards = [Process(tmp_path, clock, shard=shard) for shard in range(4)]
    for shard in shards:
        shard.request("acme")
    clock.at(HOUR + 2)
    again = [Process(tmp_path, clock, shard=shard) for shard in range(2)]
    assert [len((await shard.here("acme")).counted) for shard in again] == [3, 1]
    await again[0].keeper.seal()
    assert len(again[0].objects()) == 3


@pytest.mark.parametrize("spoil", ["foreign", "damaged", "link"])
async def test_a_file_that_is_not_understood_is_reported_and_left_alone(tmp_path, clock, spoil):
    other = Process(tmp_path, clock, identity=IDENTITY if spoil != "foreign" else IDENTITY.__class__("c2", 1))
    other.request("acme")
    (name,) = other.files()
    path = other.directory / name
    if spoil == "damaged":
        data = bytearray(path.read_bytes())
        data[256] ^= 1
        path.write_bytes(data)
    elif spoil == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    (other.directory / "notes.txt").write_text("mine")
    process = Process(tmp_path, clock)
    process.request("acme", size=1)
    clock.at(HOUR + 2)
    await process.keeper.tick()
    await process.keeper.seal()
    assert process.files() == [name, "notes.txt"]
    assert (await process.total("acme")).produce_bytes_in == 1
    assert (await process.here("acme")).unreadable == (0 if spoil == "link" else 1)
    assert {name: value for name, _, value in process.keeper.gauges()}["penstock_usage_unreadable_files"] == (
        0 if spoil == "link" else 1
    )


async def test_a_file_counts_again_when_it_can_be_read_and_is_missed_no_more_when_it_is_gone(tmp_path, clock):
    disk = FaultyDisk(RealDisk(), [Rule("pread", error=errno.EIO)])
    process = Process(tmp_path, clock, disk=disk)
    process.request("acme")
    assert [(await process.here("acme")).unreadable for _ in range(3)] == [1, 0, 0]
    (name,) = process.files()
    path = process.directory / name
    path.write_bytes(b"x" + path.read_bytes()[1:])
    assert (await process.here("acme")).unreadable == 1
    path.rename(tmp_path / "elsewhere")
    assert (await process.here("acme")).unreadable == 0


async def test_a_full_disk_delays_files_and_loses_nothing(tmp_path, clock):
    disk = FaultyDisk(RealDisk(), [Rule("pwritev", error=errno.ENOSPC, times=None)])
    process = Process(tmp_path, clock, disk=disk)
    process.request("acme")
    process.request("bolt")
    await process.keeper.tick()
    assert (await process.total("acme")).produce_requests == 1
    clock.at(HOUR + 1)
    process.request("acme")
    assert process.files() == []
    disk.rules.clear()
    await process.keeper.tick()
    process.request("acme")
    again = Process(tmp_path, clock)
    here = await again.here("acme")
    assert {one.hour: one.usage.produce_requests for one in here.counted} == {HOUR: 1, HOUR + 1: 2}
    assert (await again.total("bolt")).produce_requests == 1


async def test_a_silent_store_delays_sealing(tmp_path, clock):
    class Silent(FileStore):
        is_silent = True

        def put(self, *arguments, **options):
            if self.is_silent:
                raise StoreUnavailable("silent")
            super().put(*arguments, **options)

    store = Silent(str(tmp_path / "store"), new_id=lambda: "1")
    process = Process(tmp_path, clock, store=store)
    process.request("acme")
    clock.at(HOUR + 2)
    await process.keeper.tick()
    await process.keeper.seal()
    assert len(process.files()) == 1
    store.is_silent = False
    await process.keeper.seal()
    assert process.files() == []
    assert (await process.total("acme")).produce_requests == 1


async def test_an_hour_without_use_leaves_no_object(tmp_path, clock):
    process = Process(tmp_path, clock)
    process.request("acme")
    clock.at(HOUR + 1 - 10 / 3600)
    await process.keeper.tick()
    clock.at(HOUR + 9)
    await process.keeper.tick()
    await process.keeper.seal()
    assert (len(process.objects()), process.files()) == (1, [])


async def test_objects_are_removed_after_four_hundred_days(tmp_path, clock):
    process = Process(tmp_path, clock)
    for hour in (HOUR, HOUR + 1):
        clock.at(hour)
        process.request("acme")
    process.store.put("c1/__usage/notes", b"mine")
    clock.at(HOUR + 5)
    await process.keeper.tick()
    await process.keeper.seal()
    assert len(process.objects()) == 3
    clock.at(HOUR + KEPT_HOURS)
    await process.keeper.seal()
    assert [key.split("/")[2] for key in process.objects()] == [f"{HOUR + 1:010d}", "notes"]


@pytest.mark.parametrize("data", [b"{}", b"[", b'{"format": 2}', b'{"format": 1, "hour": 1}'])
async def test_an_object_that_is_not_understood_is_counted_and_left_alone(tmp_path, clock, data):
    process = Process(tmp_path, clock)
    process.store.put(key := f"c1/__usage/{HOUR:010d}/1-0-{7:032x}.json", data)
    assert (await process.keeper.sealed("acme", HOUR + 1, HOUR + 2)).unreadable == 0
    assert (await process.keeper.sealed("acme", HOUR, HOUR)).unreadable == 1
    assert process.objects() == {key: data}


async def test_a_clean_stop_leaves_all_counts_in_files(tmp_path, clock):
    disk = FaultyDisk(RealDisk(), [Rule("pwritev", error=errno.ENOSPC)])
    process = Process(tmp_path, clock, disk=disk)
    process.request("acme")
    await process.keeper.stop()
    assert (await Process(tmp_path, clock).total("acme")).produce_requests == 1
    assert disk.count("fdatasync") == 1


STEPS = st.lists(st.sampled_from(["request", "kill", "tick", "seal", "hour", "back", "full", "room"]), max_size=60)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_any_steps_leave_the_sum_of_all_requests(tmp_path_factory, steps):
    """A kill while the disk is full may lose what was counted in memory, and only then."""
    asyncio.run(take(steps, tmp_path_factory.mktemp("steps")))


async def take(steps: list[str], directory: Path) -> None:
    clock, asked, lost = MovedClock(), 0, 0
    process = Process(directory, clock, disk=FaultyDisk(RealDisk()))
    for step in steps:
        if step == "request":
            process.request("acme")
            asked += 1
        elif step == "kill":
            lost += sum(usage.produce_requests for _, _, usage in process.counting.unsaved())
            process.executor.shutdown()
            process = Process(directory, clock, disk=FaultyDisk(RealDisk()))
        elif step == "tick":
            await process.keeper.tick()
        elif step == "seal":
            await process.keeper.seal()
        elif step in ("hour", "back"):
            clock.at(clock.now_ms() / HOUR_MS + (0.6 if step == "hour" else -0.7))
        else:
            rules = process.counting._disk.rules
            rules[:] = [Rule("pwritev", error=errno.ENOSPC, times=None)] if step == "full" else []
        assert (await process.total("acme")).produce_requests == asked - lost
    process.executor.shutdown()
