"""The contract of Disk, tested on the real disk, the recording disk, a faulty disk without faults and pools of each;
then pairwise.
"""

import itertools
import os
import tempfile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.runtime.disk import Disk, RealDisk, WouldBlock, read_file, write_atomically
from engine.runtime.pooled_disk import PooledDisk
from engine.testing.faulty_disk import FaultyDisk
from engine.testing.recording_disk import RecordingDisk

DISKS = {
    "real": RealDisk,
    "recording": RecordingDisk,
    "faulty": lambda: FaultyDisk(RecordingDisk()),
    "pool of one file": lambda: PooledDisk(RealDisk(), 1),
    "pool of many files": lambda: PooledDisk(RecordingDisk(), 100),
}


@pytest.fixture(params=DISKS)
def disk(request) -> Disk:
    return DISKS[request.param]()


@pytest.fixture
def root(disk, tmp_path) -> str:
    path = str(tmp_path)
    disk.mkdir(path)
    return path


def written(disk: Disk, path: str, data: bytes = b"") -> int:
    handle = disk.open(path, create=True, writable=True)
    disk.pwritev(handle, [data], 0)
    return handle


def test_what_is_written_is_read_back_at_its_position(disk, root):
    handle = written(disk, f"{root}/f", b"0123456789")
    assert disk.pwritev(handle, [b"ab", bytearray(b"cd"), memoryview(b"ef")], 8) == 6
    assert disk.pread(handle, 100, 0) == b"01234567abcdef"
    assert disk.pread(handle, 3, 8) == b"abc"
    assert disk.size(handle) == 14


def test_more_buffers_than_one_system_call_takes(disk, root):
    handle = written(disk, f"{root}/f")
    assert disk.pwritev(handle, [b"ab"] * 3000, 5) == 6000
    assert disk.pread(handle, 7000, 0) == bytes(5) + b"ab" * 3000


def test_a_file_gets_the_given_time(disk, root):
    disk.close(written(disk, f"{root}/f", b"abc"))
    disk.set_modified(f"{root}/f", 1_600_000_000_123)
    assert disk.stat(f"{root}/f").modified_ms == 1_600_000_000_123
    with pytest.raises(FileNotFoundError):
        disk.set_modified(f"{root}/g", 5)


def test_reading_at_or_beyond_the_end_gives_nothing(disk, root):
    handle = written(disk, f"{root}/f", b"abc")
    assert disk.pread(handle, 10, 3) == b""
    assert disk.pread(handle, 10, 9999) == b""


def test_a_read_from_memory_gives_the_bytes_or_says_that_it_would_wait(disk, root):
    handle = written(disk, f"{root}/f", b"abcdef")
    disk.pread(handle, 1, 0)
    try:
        assert disk.pread_nowait(handle, 100, 2) == b"cdef"
        assert disk.pread_nowait(handle, 100, 6) == b""
    except WouldBlock:
        pytest.skip("this file system cannot read without waiting")


def test_a_write_beyond_the_end_leaves_zeros_between(disk, root):
    handle = written(disk, f"{root}/f", b"a")
    disk.pwritev(handle, [b"z"], 5000)
    assert disk.pread(handle, 6000, 0) == b"a" + bytes(4999) + b"z"


def test_truncation_cuts_and_growth_by_truncation_is_zeros(disk, root):
    handle = written(disk, f"{root}/f", b"abcdef")
    disk.truncate(handle, 2)
    disk.truncate(handle, 4)
    assert disk.pread(handle, 10, 0) == b"ab\0\0"


def test_a_handle_that_is_not_writable_refuses_writes(disk, root):
    disk.close(written(disk, f"{root}/f", b"abc"))
    handle = disk.open(f"{root}/f")
    with pytest.raises(OSError):
        disk.pwritev(handle, [b"x"], 0)
    with pytest.raises(OSError):
        disk.truncate(handle, 0)
    assert disk.pread(handle, 9, 0) == b"abc"


def test_a_closed_handle_is_no_handle(disk, root):
    handle = written(disk, f"{root}/f")
    disk.close(handle)
    for call in (lambda: disk.pread(handle, 1, 0), lambda: disk.fdatasync(handle), lambda: disk.close(handle)):
        with pytest.raises(OSError):
            call()


def test_opening_what_is_absent(disk, root):
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/absent")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/absent/f", create=True, writable=True)


def test_opening_to_create_keeps_what_is_there(disk, root):
    disk.close(written(disk, f"{root}/f", b"abc"))
    handle = disk.open(f"{root}/f", create=True, writable=True)
    assert disk.pread(handle, 9, 0) == b"abc"


def test_an_open_handle_outlives_the_name(disk, root):
    handle = written(disk, f"{root}/f", b"abc")
    disk.unlink(f"{root}/f")
    assert disk.pread(handle, 9, 0) == b"abc"
    other = written(disk, f"{root}/f", b"new")
    disk.fdatasync(handle)
    assert disk.pread(handle, 9, 0) == b"abc"
    assert disk.pread(other, 9, 0) == b"new"


def test_rename_replaces_and_the_old_file_stays_readable(disk, root):
    old = written(disk, f"{root}/old", b"old")
    disk.close(written(disk, f"{root}/new", b"new"))
    disk.rename(f"{root}/new", f"{root}/old")
    assert read_file(disk, f"{root}/old") == b"new"
    assert disk.pread(old, 9, 0) == b"old"
    assert disk.listdir(root) == ["old"]


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("absent", "f", FileNotFoundError),
        ("f", "full", IsADirectoryError),
        ("full", "f", NotADirectoryError),
        ("empty", "full", OSError),
        ("full", "full/within", OSError),
        ("full/f", "full", OSError),
        ("f", "f/g", NotADirectoryError),
    ],
)
def test_a_rename_that_cannot_be_changes_nothing(disk, root, source, target, error):
    disk.mkdir(f"{root}/empty")
    disk.mkdir(f"{root}/full")
    for name in ("f", "full/f"):
        disk.close(written(disk, f"{root}/{name}"))
    before = tree(disk, root)
    with pytest.raises(error):
        disk.rename(f"{root}/{source}", f"{root}/{target}")
    assert tree(disk, root) == before


def test_directories_are_made_with_their_parents_and_moved_with_their_content(disk, root):
    disk.mkdir(f"{root}/a/b")
    disk.mkdir(f"{root}/a/b")
    disk.close(written(disk, f"{root}/a/b/f", b"x"))
    disk.rename(f"{root}/a", f"{root}/c")
    assert read_file(disk, f"{root}/c/b/f") == b"x"
    assert disk.stat(f"{root}/a") is None
    assert disk.stat(f"{root}/c").is_dir


def test_directories_go_when_they_are_empty(disk, root):
    disk.mkdir(f"{root}/a/b")
    with pytest.raises(OSError):
        disk.rmdir(f"{root}/a")
    disk.rmdir(f"{root}/a/b")
    disk.rmdir(f"{root}/a")
    assert disk.listdir(root) == []


def test_listing_is_sorted_and_an_absent_directory_is_empty(disk, root):
    for name in "cab":
        disk.close(written(disk, f"{root}/{name}"))
    assert disk.listdir(root) == ["a", "b", "c"]
    assert disk.listdir(f"{root}/absent") == []


def test_stat_returns_size_and_kind_or_nothing(disk, root):
    disk.close(written(disk, f"{root}/f", b"abc"))
    assert disk.stat(f"{root}/f")[:2] == (3, False)
    assert disk.stat(root).is_dir
    assert disk.stat(f"{root}/absent") is None


def test_free_bytes_is_a_size_of_what_exists(disk, root):
    assert disk.free_bytes(root) > 0
    with pytest.raises(FileNotFoundError):
        disk.free_bytes(f"{root}/absent")


def test_a_lock_excludes_until_it_is_closed(disk, root):
    held = disk.lock(f"{root}/lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/lock")
    disk.close(held)
    disk.close(disk.lock(f"{root}/lock"))


def test_syncing_changes_nothing_that_is_seen(disk, root):
    handle = written(disk, f"{root}/f", b"abc")
    disk.fdatasync(handle)
    disk.fsync_dir(root)
    assert disk.pread(handle, 9, 0) == b"abc"
    for absent in (f"{root}/absent", f"{root}/f"):
        with pytest.raises(OSError):
            disk.fsync_dir(absent)


def test_a_small_file_is_replaced_whole(disk, root):
    write_atomically(disk, f"{root}/f", b"first, and longer")
    write_atomically(disk, f"{root}/f", b"second")
    assert read_file(disk, f"{root}/f") == b"second"
    assert disk.listdir(root) == ["f"]


# Both side by side.

PATHS = ["a", "b", "d", "d/a", "d/d", "d/d/a", "e"]
paths = st.sampled_from(PATHS)
handles = st.integers(0, 3)
places = st.integers(0, 9000)
calls = st.one_of(
    st.tuples(st.just("open"), paths, st.booleans()),
    st.tuples(st.sampled_from(["close", "fdatasync", "size"]), handles),
    st.tuples(st.just("pwritev"), handles, st.lists(st.binary(max_size=50), min_size=1, max_size=3), places),
    st.tuples(st.sampled_from(["pread", "pread_nowait"]), handles, places, places),
    st.tuples(st.just("truncate"), handles, places),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.sampled_from(["mkdir", "mkdir", "unlink", "rmdir", "listdir", "stat", "fsync_dir", "lock"]), paths),
)


class Side:
    """One disk and its open handles, with the same numbers on both sides."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk, self.root, self.handles = disk, root, {}
        self._numbers = itertools.cycle(range(4))
        disk.mkdir(root)

    def call(self, name: str, *arguments: object) -> object:
        """Return the visible result: a value, or the number of the error."""
        try:
            return self._call(name, *arguments)
        except OSError as error:
            return type(error), error.errno
        except WouldBlock:
            return self._call("pread", *arguments)

    def _call(self, name, *arguments):
        method = getattr(self.disk, name)
        if name in ("open", "lock"):
            return self._opened(method, name, *arguments)
        if name in ("rename", "mkdir", "unlink", "rmdir", "listdir", "stat", "fsync_dir"):
            found = method(*(f"{self.root}/{path}" for path in arguments))
            return (found.is_dir, found.is_dir or found.size_bytes) if name == "stat" and found else found
        number, *rest = arguments
        if number not in self.handles:
            return "no handle"
        handle = self.handles.pop(number) if name == "close" else self.handles[number]
        return method(handle, *rest)

    def _opened(self, method, name, path, create=False):
        path = f"{self.root}/{path}"
        if not create and name == "open" and (found := self.disk.stat(path)) and found.is_dir:
            return "directories are not opened to be read"
        handle = method(path) if name == "lock" else method(path, create=create, writable=create)
        number = next(self._numbers)
        self.close(number)
        self.handles[number] = handle
        return number

    def close(self, number: int) -> None:
        if number in self.handles:
            self.disk.close(self.handles.pop(number))


@pytest.mark.parametrize("files_max", [None, 1, 3])
@settings(max_examples=200, deadline=None)
@given(calls=st.lists(calls, max_size=40))
@example(calls=[("lock", "a"), ("rename", "b", "a"), ("lock", "a")])  # a refused rename released the lock of its target
def test_recording_and_pooled_disks_behave_like_the_real_one(files_max, calls):
    recording: Disk = RecordingDisk()
    recording = recording if files_max is None else PooledDisk(recording, files_max)
    with tempfile.TemporaryDirectory() as directory:
        real, other = Side(RealDisk(), directory), Side(recording, directory)
        try:
            for call in calls:
                assert other.call(*call) == real.call(*call), call
            assert tree(recording, directory) == tree(real.disk, directory)
        finally:
            for number in range(4):
                real.close(number)


def tree(disk: Disk, path: str) -> object:
    if not disk.stat(path).is_dir:
        return read_file(disk, path)
    return {name: tree(disk, os.path.join(path, name)) for name in disk.listdir(path)}


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no tmpfs at hand")
def test_a_file_system_without_mincore_is_read_in_a_thread():
    """tmpfs answers RWF_NOWAIT with EOPNOTSUPP; a reader that took that for a broken disk would never read there."""
    disk = RealDisk()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        handle = written(disk, f"{root}/f", b"0123456789")
        try:
            read = disk.pread_nowait(handle, 4, 2)
        except WouldBlock:
            read = disk.pread(handle, 4, 2)
        assert read == b"2345"
        disk.close(handle)


def test_a_read_that_fails_otherwise_is_no_reason_to_try_again():
    with pytest.raises(OSError, match="Bad file descriptor"):
        RealDisk().pread_nowait(-1, 4, 0)
