"""The recording disk's model of power losses: what may be lost and what may not.

Tests that say "may" find one state that shows it; tests that say "never" check all states.
"""

import itertools
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.runtime.disk import Disk, read_file, write_atomically
from engine.testing.recording_disk import PowerLoss, RecordingDisk

PAGE = 4096
A, B, C = (letter * PAGE for letter in (b"a", b"b", b"c"))
ZERO = bytes(PAGE)


def states(disk: RecordingDisk, limit: int = 5000) -> list[RecordingDisk]:
    found = list(disk.crash_states(limit, random.Random(1)))
    assert len(found) < limit, "these tests want to see every state"
    return found


def contents(disk: RecordingDisk, path: str = "/f") -> set[bytes | None]:
    return {read_file(state, path) for state in states(disk)}


def listings(disk: RecordingDisk, path: str = "/") -> set[tuple[str, ...]]:
    return {tuple(state.listdir(path)) for state in states(disk)}


def new_file(disk: Disk, path: str = "/f", data: bytes = b"") -> int:
    """Create a file whose entry and bytes are durable."""
    handle = disk.open(path, create=True, writable=True)
    disk.pwritev(handle, [data], 0)
    disk.fdatasync(handle)
    disk.fsync_dir(path.rpartition("/")[0] or "/")
    return handle


@pytest.fixture
def disk() -> RecordingDisk:
    return RecordingDisk()


# Bytes.


def test_what_was_synced_is_in_every_state(disk):
    new_file(disk, data=A + b"tail")
    assert contents(disk) == {A + b"tail"}
    assert len(states(disk)) == 1


def test_an_unsynced_tail_may_be_absent_zero_filled_short_or_whole(disk):
    handle = new_file(disk, data=b"old")
    disk.pwritev(handle, [b"new"], 3)
    assert contents(disk) == {b"old", b"old\0\0\0", b"oldnew"}


def test_every_subset_of_unsynced_pages_may_be_kept(disk):
    handle = new_file(disk)
    disk.pwritev(handle, [A + B + C], 0)
    whole_size = {content for content in contents(disk) if len(content) == 3 * PAGE}
    assert whole_size == {a + b + c for a, b, c in itertools.product((A, ZERO), (B, ZERO), (C, ZERO))}


def test_a_growing_write_may_have_reached_any_page_boundary(disk):
    handle = new_file(disk, data=b"x")
    disk.pwritev(handle, [A + B], 1)
    assert {len(content) for content in contents(disk)} == {1, PAGE, 2 * PAGE, 2 * PAGE + 1}


def test_an_overwritten_page_may_be_stale_but_never_zero(disk):
    handle = new_file(disk, data=A + B)
    disk.pwritev(handle, [C + C], 0)
    assert contents(disk) == {A + B, C + B, A + C, C + C}


def test_synced_bytes_that_share_a_page_with_unsynced_ones_are_never_lost(disk):
    handle = new_file(disk, data=b"synced")
    for i in range(5):
        disk.pwritev(handle, [b"more"], 6 + 4 * i)
    assert all(content.startswith(b"synced") for content in contents(disk))


def test_a_page_may_be_as_it_was_between_two_writes(disk):
    handle = new_file(disk)
    disk.pwritev(handle, [b"one"], 0)
    disk.pwritev(handle, [b"two"], 3)
    assert contents(disk) == {b"", b"\0\0\0", b"one", bytes(6), b"one\0\0\0", b"onetwo"}


def test_an_unsynced_truncation_may_bring_stale_bytes_back(disk):
    handle = new_file(disk, data=A + B)
    disk.truncate(handle, PAGE)
    disk.pwritev(handle, [b"new"], PAGE)
    found = contents(disk)
    assert {A, A + B, A + b"new", A + b"\0\0\0", A + b"bbb"} <= found
    assert all(content.startswith(A) for content in found)


def test_a_synced_truncation_is_certain(disk):
    handle = new_file(disk, data=A + B)
    disk.truncate(handle, 10)
    disk.fdatasync(handle)
    assert contents(disk) == {b"a" * 10}


def test_syncing_one_file_says_nothing_of_another(disk):
    new_file(disk, "/g")
    handle, other = new_file(disk, "/f"), disk.open("/g", writable=True)
    disk.pwritev(handle, [b"f"], 0)
    disk.pwritev(other, [b"g"], 0)
    disk.fdatasync(other)
    assert contents(disk, "/g") == {b"g"}
    assert contents(disk, "/f") == {b"", b"\0", b"f"}


# Entries.


def test_a_synced_file_may_be_lost_until_its_directory_is_synced(disk):
    handle = disk.open("/f", create=True, writable=True)
    disk.pwritev(handle, [b"data"], 0)
    disk.fdatasync(handle)
    assert contents(disk) == {None, b"data"}
    disk.fsync_dir("/")
    assert contents(disk) == {b"data"}


def test_a_synced_directory_keeps_the_file_but_not_its_bytes(disk):
    handle = disk.open("/f", create=True, writable=True)
    disk.pwritev(handle, [b"data"], 0)
    disk.fsync_dir("/")
    assert contents(disk) == {b"", bytes(4), b"data"}


def test_an_unlink_may_be_undone_with_the_bytes_that_were_there(disk):
    new_file(disk, data=b"data")
    disk.unlink("/f")
    assert contents(disk) == {None, b"data"}
    disk.fsync_dir("/")
    assert contents(disk) == {None}


def test_a_rename_happens_whole_or_not_at_all(disk):
    new_file(disk, "/old", b"data")
    disk.rename("/old", "/new")
    assert listings(disk) == {("old",), ("new",)}


def test_a_rename_between_directories_is_certain_when_either_is_synced(disk):
    for path in ("/d", "/e"):
        disk.mkdir(path)
    new_file(disk, "/d/f", b"data")
    disk.fsync_dir("/")
    disk.rename("/d/f", "/e/f")
    assert {(read_file(s, "/d/f"), read_file(s, "/e/f")) for s in states(disk)} == {(None, b"data"), (b"data", None)}
    disk.fsync_dir("/e")
    assert {(read_file(s, "/d/f"), read_file(s, "/e/f")) for s in states(disk)} == {(None, b"data")}


def test_changes_of_different_names_happen_each_for_itself(disk):
    for path in ("/a", "/b"):
        disk.open(path, create=True)
    assert listings(disk) == {(), ("a",), ("b",), ("a", "b")}


def test_changes_of_one_name_happen_in_order(disk):
    new_file(disk, data=b"first")
    disk.unlink("/f")
    disk.fdatasync(second := disk.open("/f", create=True, writable=True))
    disk.pwritev(second, [b"second"], 0)
    disk.fdatasync(second)
    disk.rename("/f", "/g")
    seen = {(read_file(state, "/f"), read_file(state, "/g")) for state in states(disk)}
    assert seen == {(b"first", None), (None, None), (b"second", None), (None, b"second")}


def test_what_lies_in_a_directory_is_lost_with_it(disk):
    disk.mkdir("/d/e")
    new_file(disk, "/d/e/f", b"data")
    assert contents(disk, "/d/e/f") == {None, b"data"}
    disk.fsync_dir("/d")
    assert contents(disk, "/d/e/f") == {None, b"data"}
    disk.fsync_dir("/")
    assert contents(disk, "/d/e/f") == {b"data"}


def test_what_is_moved_into_a_new_directory_is_not_lost_with_it(disk):
    new_file(disk, "/f", b"data")
    disk.mkdir("/d")
    disk.rename("/f", "/d/f")
    assert {(read_file(s, "/f"), read_file(s, "/d/f")) for s in states(disk)} == {(b"data", None), (None, b"data")}


# Complete procedures.


def crash_points(work) -> list[RecordingDisk]:
    """Yield every state after a power loss at any operation of `work`, which gets a new disk each time."""
    work(counted := RecordingDisk())
    found = []
    for n in range(1, counted.operations + 1):
        disk = RecordingDisk()
        disk.lose_power_after(n)
        with pytest.raises(PowerLoss):
            work(disk)
        found += states(disk)
    return found


def test_an_atomic_replacement_leaves_the_old_or_the_new_file_whole():
    def replace(disk):
        write_atomically(disk, "/f", b"old")
        write_atomically(disk, "/f", b"new, which is longer")

    seen = {read_file(state, "/f") for state in crash_points(replace)}
    assert seen == {None, b"old", b"new, which is longer"}


def test_a_replacement_without_sync_is_found_out():
    def replace(disk):
        new_file(disk, "/f", b"old")
        disk.pwritev(disk.open("/f.tmp", create=True, writable=True), [b"new"], 0)
        disk.rename("/f.tmp", "/f")

    seen = {read_file(state, "/f") for state in crash_points(replace)}
    assert {b"", bytes(3)} <= seen


# Power losses.


def test_the_operation_that_meets_the_power_loss_is_uncertain(disk):
    handle = new_file(disk, data=b"old")
    disk.lose_power_after(disk.operations + 1)
    with pytest.raises(PowerLoss):
        disk.pwritev(handle, [b"new"], 0)
    assert contents(disk) == {b"old", b"new"}


def test_a_sync_that_meets_the_power_loss_has_promised_nothing(disk):
    handle = new_file(disk)
    disk.pwritev(handle, [b"new"], 0)
    disk.lose_power_after(disk.operations + 1)
    with pytest.raises(PowerLoss):
        disk.fdatasync(handle)
    assert b"" in contents(disk)


def test_without_power_everything_fails_but_closing(disk):
    handle = new_file(disk, data=b"x")
    disk.lose_power_after(disk.operations + 1)
    for call in (
        lambda: disk.mkdir("/d"),
        lambda: disk.pread(handle, 1, 0),
        lambda: disk.pwritev(handle, [b"y"], 0),
        lambda: disk.stat("/f"),
        lambda: disk.open("/f"),
        lambda: disk.fdatasync(handle),
    ):
        with pytest.raises(PowerLoss):
            call()
    disk.close(handle)
    assert "without power" in repr(disk)


def test_reading_is_no_operation(disk):
    handle = new_file(disk, data=b"x")
    before = disk.operations
    disk.pread(handle, 1, 0)
    disk.stat("/f")
    disk.listdir("/")
    disk.close(disk.open("/f"))
    assert disk.operations == before


# States as disks.


def test_a_state_is_a_disk_on_which_everything_is_certain(disk):
    handle = disk.open("/f", create=True, writable=True)
    disk.pwritev(handle, [A + B], 0)
    for state in states(disk):
        again = states(state)
        assert len(again) == 1
        assert read_file(again[0], "/f") == read_file(state, "/f")


def test_states_do_not_share_bytes_with_the_disk_or_each_other(disk):
    new_file(disk, data=b"data")
    first, second = states(disk) + states(disk)
    first.pwritev(first.open("/f", writable=True), [b"DATA"], 0)
    assert read_file(second, "/f") == read_file(disk, "/f") == b"data"


def test_a_snapshot_is_what_a_killed_process_leaves(disk):
    handle = new_file(disk, data=b"old")
    disk.pwritev(handle, [b"new"], 0)
    disk.lock("/lock")
    copy = disk.snapshot()
    assert read_file(copy, "/f") == b"new"
    assert contents(copy) == {b"old", b"new"}
    copy.close(copy.lock("/lock"))
    disk.pwritev(handle, [b"newer"], 0)
    assert read_file(copy, "/f") == b"new"
    with pytest.raises(OSError):
        copy.pread(handle, 1, 0)


def test_too_many_states_are_sampled_with_the_extremes_and_without_repetition(disk):
    handle = new_file(disk, data=A * 20)
    disk.pwritev(handle, [B * 20], 0)
    disk.pwritev(handle, [C], 19 * PAGE)
    found = [read_file(state, "/f") for state in disk.crash_states(50, random.Random(3))]
    assert len(found) == len(set(found)) == 50
    assert {A * 20, B * 19 + C, A * 19 + C} <= set(found)
    assert found == [read_file(state, "/f") for state in disk.crash_states(50, random.Random(3))]
    assert all({content[i : i + PAGE] for i in range(0, 20 * PAGE, PAGE)} <= {A, B, C} for content in found)


def test_a_sample_loses_single_entries_and_keeps_single_entries(disk):
    names = [f"f{i:02}" for i in range(20)]
    for name in names:
        disk.open(f"/{name}", create=True)
    kept = [len(state.listdir("/")) for state in disk.crash_states(200, random.Random(5))]
    assert {0, 1, 19, 20} <= set(kept)


# Against a simple twin: a list of all contents of the file since its last sync.

places = st.integers(0, 3 * PAGE)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), places, st.integers(1, PAGE + 100)),
        st.tuples(st.just("truncate"), places),
        st.tuples(st.just("sync")),
    ),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(0, 1000))
def test_each_page_of_each_state_was_there_at_some_time_since_the_sync(steps, seed):
    disk = RecordingDisk()
    handle = new_file(disk)
    versions = [b""]
    for number, (kind, *arguments) in enumerate(steps):
        if kind == "write":
            position, length = arguments
            disk.pwritev(handle, [bytes([65 + number]) * length], position)
        elif kind == "truncate":
            disk.truncate(handle, *arguments)
        else:
            disk.fdatasync(handle)
            versions = []
        versions.append(read_file(disk, "/f"))
    found = [read_file(state, "/f") for state in disk.crash_states(30, random.Random(seed))]
    assert versions[0] in found
    assert versions[-1] in found
    for content in found:
        assert is_possible(content, versions), (content, versions)


def is_possible(content: bytes, versions: list[bytes]) -> bool:
    size = len(content)
    went_through = any(min(a, b) <= size <= max(a, b) for a, b in itertools.pairwise(map(len, versions)))
    if size not in map(len, versions) and (size % PAGE or not went_through):
        return False
    return all(
        any(content[at : at + PAGE] == page_of(version, at, size) for version in versions)
        for at in range(0, size, PAGE)
    )


def page_of(version: bytes, at: int, size: int) -> bytes:
    return version[at : at + PAGE].ljust(PAGE, b"\0")[: size - at]


def test_two_threads_may_use_the_disk(disk):
    def append(path: str) -> None:
        handle = disk.open(path, create=True, writable=True)
        for i in range(300):
            disk.pwritev(handle, [b"x"], i)
            disk.fdatasync(handle)

    threads = [threading.Thread(target=append, args=(path,)) for path in ("/a", "/b")]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        disk.snapshot()
    assert disk.operations == 2 * (1 + 600)
    assert read_file(disk, "/a") == read_file(disk, "/b") == b"x" * 300
