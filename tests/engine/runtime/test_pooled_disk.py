"""A pool extends the contract of Disk: few open files, no lost syncs, and the handling of EMFILE."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from engine.runtime.disk import RealDisk, WouldBlock
from engine.runtime.pooled_disk import PooledDisk
from engine.testing.faulty_disk import FaultyDisk, Rule
from engine.testing.recording_disk import RecordingDisk

FILES_MAX = 4


@pytest.fixture
def inner() -> FaultyDisk:
    disk = FaultyDisk(RecordingDisk())
    disk.mkdir("/d")
    return disk


@pytest.fixture
def pool(inner) -> PooledDisk:
    return PooledDisk(inner, FILES_MAX)


def made(disk: PooledDisk, name: str, data: bytes = b"data", *, is_synced: bool = True) -> int:
    handle = disk.open(f"/d/{name}", create=True, writable=True)
    disk.pwritev(handle, [data], 0)
    if is_synced:
        disk.fdatasync(handle)
    return handle


def still_open(inner: FaultyDisk) -> int:
    opened = sum(call.operation == "open" and call.error is None for call in inner.calls)
    return opened - inner.count("close")


def fill(pool: PooledDisk) -> None:
    """Fill every slot with files with unsynced writes, which are closed last."""
    for number in range(FILES_MAX):
        made(pool, f"filler{number}", is_synced=False)


def test_many_handles_need_few_open_files(pool, inner):
    handles = [made(pool, str(number), b"%d" % number) for number in range(100)]
    for number in Random(1).sample(range(100), 100):
        assert pool.pread(handles[number], 10, 0) == b"%d" % number
        assert still_open(inner) == pool.open_files <= FILES_MAX
    for handle in handles:
        pool.close(handle)
    assert still_open(inner) == pool.open_files == 0


def test_the_file_used_last_stays_open(pool, inner):
    used = made(pool, "used")
    for number in range(20):
        pool.close(made(pool, str(number)))
        made(pool, f"other{number}")
        pool.pread(used, 1, 0)
    assert inner.count("open", "/d/used") == 1


def test_a_file_with_unsynced_writes_is_synced_before_it_is_closed(pool, inner):
    handle = made(pool, "one", is_synced=False)
    fill(pool)
    assert [call.operation for call in inner.calls if call.path == "/d/one"] == [
        "open",
        "pwritev",
        "fdatasync",
        "close",
    ]
    pool.fdatasync(handle)
    assert inner.count("fdatasync", "/d/one") == 1, "it is synced already"
    pool.pwritev(handle, [b"more"], 4)
    pool.fdatasync(handle)
    assert inner.count("fdatasync", "/d/one") == 2


def test_a_sync_that_failed_for_another_files_sake_fails_its_own_and_is_not_repeated(pool, inner):
    handle = made(pool, "one", is_synced=False)
    inner.rules = [Rule("fdatasync", "/d/one", error=errno.EIO)]
    fill(pool)
    assert inner.faults == 1, "it had to be closed"
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            pool.fdatasync(handle)
    assert inner.count("fdatasync", "/d/one") == 1
    assert pool.pread(handle, 4, 0) == b"data"


def test_a_file_that_was_never_written_through_a_handle_is_synced_when_asked(pool, inner):
    pool.close(made(pool, "one", is_synced=False))
    handle = pool.open("/d/one", writable=True)
    fill(pool)
    pool.fdatasync(handle)
    assert inner.count("fdatasync", "/d/one") == 1


def test_too_many_open_files_closes_what_is_idle_and_tries_again(pool, inner):
    idle = [made(pool, str(number)) for number in range(3)]
    inner.rules = [Rule("open", "/d/new", times=2, error=errno.EMFILE)]
    made(pool, "new")
    assert (inner.faults, still_open(inner)) == (2, 2)
    assert [pool.pread(handle, 4, 0) for handle in idle] == [b"data"] * 3


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_is_raised_when_nothing_is_idle_and_never_closes_unsynced_writes(pool, inner, error):
    unsynced = made(pool, "unsynced", is_synced=False)
    inner.rules = [Rule("open", times=None, error=error), Rule("fsync_dir", times=None, error=error)]
    for call in (lambda: pool.open("/d/new", create=True), lambda: pool.fsync_dir("/d")):
        with pytest.raises(OSError) as refused:
            call()
        assert refused.value.errno == error
    assert inner.count("fdatasync") == 0
    pool.fdatasync(unsynced)
    inner.rules = []
    made(pool, "new")


def test_a_read_from_memory_opens_nothing(pool, inner):
    handle = made(pool, "one")
    assert pool.pread_nowait(handle, 4, 0) == b"data"
    fill(pool)
    opens = inner.count("open")
    with pytest.raises(WouldBlock):
        pool.pread_nowait(handle, 4, 0)
    assert inner.count("open") == opens
    pool.pread(handle, 4, 0)
    assert pool.pread_nowait(handle, 4, 0) == b"data"


def test_a_file_in_use_is_not_closed(inner):
    """The read has its file and is slow, while other calls need its slot."""
    in_read, may_end = threading.Event(), threading.Event()

    def stay(_: str) -> None:
        in_read.set()
        assert may_end.wait(60)

    slow = FaultyDisk(inner.disk, [Rule("pread", times=None, act=stay)])
    pool = PooledDisk(slow, 1)
    handle = made(pool, "one")
    with ThreadPoolExecutor(1) as executor:
        read = executor.submit(pool.pread, handle, 4, 0)
        assert in_read.wait(60)
        made(pool, "other")
        pool.close(handle)
        assert slow.count("close", "/d/one") == 0
        may_end.set()
        assert read.result() == b"data"
    assert slow.count("close", "/d/one") == 1


def test_a_replaced_or_removed_file_is_read_through_its_old_handle(pool):
    replaced, removed, moved = made(pool, "replaced", b"old"), made(pool, "removed"), made(pool, "moved")
    made(pool, "new", b"new")
    fill(pool)
    pool.rename("/d/new", "/d/replaced")
    pool.unlink("/d/removed")
    pool.rename("/d/moved", "/d/elsewhere")
    made(pool, "removed", b"another")
    fill(pool)
    assert pool.pread(replaced, 9, 0) == b"old"
    assert pool.pread(removed, 9, 0) == b"data"
    assert pool.pread(moved, 9, 0) == b"data"


def test_a_removed_file_that_could_not_be_kept_open_is_gone(pool, inner):
    handle = made(pool, "one")
    fill(pool)
    inner.rules = [Rule("open", "/d/one", times=None, error=errno.EMFILE)]
    pool.unlink("/d/one")
    inner.rules = []
    made(pool, "one", b"another")
    with pytest.raises(FileNotFoundError):
        pool.pread(handle, 9, 0)


def test_a_lock_is_held_while_others_need_its_place(tmp_path):
    pool = PooledDisk(RealDisk(), 1)
    handle = pool.lock(f"{tmp_path}/lock")
    for number in range(5):
        pool.open(f"{tmp_path}/{number}", create=True, writable=True)
    with pytest.raises(BlockingIOError):
        RealDisk().lock(f"{tmp_path}/lock")
    pool.close(handle)
    RealDisk().close(RealDisk().lock(f"{tmp_path}/lock"))


def test_threads_that_read_write_and_replace_see_their_own_bytes_and_few_files(tmp_path):
    threads, rounds = 8, 150
    pool = PooledDisk(RealDisk(), FILES_MAX)
    before = len(os.listdir("/proc/self/fd"))
    most = [0] * threads

    def work(number: int) -> None:
        random = Random(number)
        handles, contents = [], []
        for at in range(6):
            path = f"{tmp_path}/{number}-{at}"
            handles.append(pool.open(path, create=True, writable=True))
            contents.append(b"")
        for _ in range(rounds):
            at = random.randrange(6)
            if random.random() < 0.5:
                contents[at] += b"%d." % random.randrange(1000)
                pool.pwritev(handles[at], [contents[at]], 0)
            if random.random() < 0.3:
                pool.fdatasync(handles[at])
            if random.random() < 0.1:
                pool.rename(f"{tmp_path}/{number}-{at}", f"{tmp_path}/{number}-old")
                pool.close(handles[at])
                handles[at] = pool.open(f"{tmp_path}/{number}-{at}", create=True, writable=True)
                contents[at] = b""
            assert pool.pread(handles[at], 1_000_000, 0) == contents[at]
            most[number] = max(most[number], pool.open_files)
        for handle in handles:
            pool.close(handle)

    with ThreadPoolExecutor(threads) as executor:
        list(executor.map(work, range(threads)))
    assert max(most) <= FILES_MAX + threads
    assert pool.open_files == 0
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_was_just_made_is_not_closed_before_it_is_written(pool, inner):
    """A roll creates a file and truncates it: an operation that has begun must not fail for lack of a handle."""
    handle = pool.open("/d/new", create=True, writable=True)
    inner.rules = [Rule("open", times=None, error=errno.EMFILE)]
    with pytest.raises(OSError, match="Too many open files"):
        pool.open("/d/another", create=True)
    pool.truncate(handle, 0)
    pool.pwritev(handle, [b"data"], 0)
    pool.fdatasync(handle)
    assert inner.count("open", "/d/new") == 1
