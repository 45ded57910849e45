"""Files that are written to free space, on file systems without a free byte; and every state after a power loss."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from engine.compaction.progress import Progress, load_progress, save_progress
from engine.directory.data_directory import DataDirectory, Identity
from engine.directory.running_file import is_same_boot, write_running
from engine.directory.topics import TopicRecord, save_settings, unlist_topic
from engine.format import paths
from engine.format.checksum import Checksum
from engine.format.spare_files import LARGE, SMALL, claim_spare, fill_spares, remove_claimed, write_without_room
from engine.log.epochs import EpochStart
from engine.log.leader_epochs import load_epochs, save_epochs
from engine.log.recovery import Checkpoint, LastShutdown
from engine.log.segment_swap import Swap, begin_swap, load_swap, new_file_path
from engine.producers.fence_file import load_fence, save_fence
from engine.producers.fencing import Fence
from engine.producers.snapshots import State, remembers, save_state
from engine.runtime.disk import Disk, RealDisk, read_file
from engine.testing.faulty_disk import FaultyDisk
from engine.testing.recording_disk import RecordingDisk
from replication.cluster.registration_state import RegistrationState, read_registration_state, save_registration_state
from replication.cluster.start_counter import StartCounter, load_start_counter, save_start_counter
from replication.coordination.journal import open_journal
from replication.coordination.tree import Entry
from tests import disk_faults

TOPIC = TopicRecord("t", "id1", 1, overrides={"retention_ms": 1000})
Step = Callable[[Disk, str, int], object]


def _directory(data: str) -> DataDirectory:
    return DataDirectory(RealDisk(), data, Identity("c", 1), last_shutdown=LastShutdown.CLEAN)


def _partition(data: str) -> str:
    return paths.partition_dir(data, "t", "id1", 0)


def _save_points(disk: Disk, data: str, n: int) -> None:
    _directory(data).save_checkpoints({f"id{one}/0": Checkpoint(n, n) for one in range(400)})


def _journal(disk: Disk, data: str, n: int) -> None:
    """Appends; on a full disk it moves into a spare file first, as the embedded store does."""
    journal, tree = open_journal(disk, f"{data}/{paths.COORDINATION}")
    try:
        if n > 1:
            assert journal.compact_into_spare(tree.number, tree.durable_entries())
        for _ in range(20):
            journal.append(tree.number + 1, {"/k": Entry(bytes(300) + b"%d" % n, n, 1)})
            tree.number += 1
    finally:
        journal.close()


def _journal_value(disk: Disk, data: str) -> int:
    journal, tree = open_journal(disk, f"{data}/{paths.COORDINATION}")
    journal.close()
    return int(tree.get("/k").value[300:])


def _swap(disk: Disk, data: str, n: int) -> None:
    path = new_file_path(_partition(data), 0)
    if disk.stat(path) is None:
        disk.close(disk.open(path, create=True, writable=True))
    begin_swap(disk, _partition(data), Swap(0, (n,), Checksum(0, 0), 1000))


FILES: dict[str, tuple[Step, Callable[[Disk, str], object]]] = {
    "recovery-points": (_save_points, lambda _, data: _directory(data).load_checkpoints()["id7/0"].log_start),
    "topic.json": (
        lambda disk, data, n: save_settings(disk, data, TopicRecord("t", "id1", 1, overrides={"retention_ms": n})),
        lambda disk, data: (
            b'"retention_ms": 2' in read_file(disk, f"{paths.topic_dir(data, 't', 'id1')}/topic.json") and 2
        ),
    ),
    "running": (
        lambda disk, data, n: write_running(disk, data, f"boot {n}", is_recovered=True),
        lambda disk, data: is_same_boot(disk, data, "boot 2") and 2,
    ),
    "vouching": (
        lambda disk, data, n: save_registration_state(disk, data, RegistrationState(n, n, "d")),
        lambda disk, data: read_registration_state(disk, data).survives_from,
    ),
    "start-counter": (
        lambda disk, data, n: save_start_counter(disk, data, StartCounter(n)),
        lambda disk, data: load_start_counter(disk, data).number,
    ),
    "leader-epochs": (
        lambda disk, data, n: save_epochs(disk, _partition(data), [EpochStart(n, 0)]),
        lambda disk, data: load_epochs(disk, _partition(data))[0].epoch,
    ),
    "fenced": (
        lambda disk, data, n: save_fence(disk, _partition(data), Fence("token", n)),
        lambda disk, data: load_fence(disk, _partition(data)).offset,
    ),
    "cleaned": (
        lambda disk, data, n: save_progress(disk, _partition(data), Progress(n)),
        lambda disk, data: load_progress(disk, _partition(data)).cleaned_end,
    ),
    "swap": (_swap, lambda disk, data: load_swap(disk, _partition(data), 0).also_replaced[0]),
    "snapshot": (
        lambda disk, data, n: save_state(disk, _partition(data), State(n), write=write_without_room),
        lambda disk, data: remembers(disk, _partition(data), 2, 2) and 2,
    ),
    "coordination": (_journal, _journal_value),
}


@pytest.fixture(params=["ext4", "tmpfs"])
def data(request, tmp_path) -> Iterator[str]:
    make = {"ext4": disk_faults.make_ext4, "tmpfs": disk_faults.make_tmpfs}[request.param]
    try:
        with disk_faults.small_file_system(tmp_path / "small", 24, make) as mounted:
            yield str(mounted)
    except disk_faults.CannotMount as error:
        pytest.skip(str(error))


def _prepare(disk: Disk, data: str) -> None:
    disk.mkdir(_partition(data))
    disk.close(disk.open(f"{data}/{paths.META}", create=True, writable=True))


def test_every_file_that_frees_space_is_written_without_a_free_byte(data):
    disk = RealDisk()
    _prepare(disk, data)
    for write, _ in FILES.values():
        write(disk, data, 1)
    assert fill_spares(disk, data)
    disk_faults.fill(Path(data))
    for name, (write, read) in FILES.items():
        assert disk.free_bytes(data) == 0
        write(disk, data, 2)
        assert read(disk, data) == 2, name
        fill_spares(disk, data)  # in the room of the replaced file
        disk_faults.fill(Path(data))
    unlist_topic(disk, data, TOPIC)


def test_a_hundred_changes_in_a_row_need_no_free_byte(data):
    """Each replaced file makes room for the next spare one."""
    disk = RealDisk()
    _prepare(disk, data)
    save_settings(disk, data, TOPIC)
    assert fill_spares(disk, data)
    disk_faults.fill(Path(data))
    for n in range(100):
        save_settings(disk, data, TopicRecord("t", "id1", 1, overrides={"retention_ms": n}))
        fill_spares(disk, data)
    assert b'"retention_ms": 99' in read_file(disk, f"{paths.topic_dir(data, 't', 'id1')}/topic.json")


def _full(disk: Disk) -> FaultyDisk:
    full = FaultyDisk(disk)
    full.room_bytes = 0
    return full


def test_a_power_loss_leaves_the_old_or_the_new_file_and_a_start_makes_the_spares_again():
    counted = RecordingDisk()
    _story(counted)
    for operation in range(1, counted.operations + 1):
        disk = RecordingDisk()
        disk.lose_power_after(operation)
        done: list[bytes] = []
        try:
            _story(disk, done)
        except OSError:
            assert disk.has_lost_power
        for state in disk.crash_states(20, Random(operation)):
            found = read_file(state, "/data/file")
            assert found in ([done[-1], b"n" * len(found or b"")] if done else [None, b"o" * 100]), operation
            if state.kind("/data/meta") is not None:
                remove_claimed(state, "/data")
                assert fill_spares(state, "/data")
                assert len(state.listdir("/data/spare")) == SMALL + LARGE
                write_without_room(_full(state), "/data/file", b"last")
                assert read_file(state, "/data/file") == b"last"


def _story(disk: RecordingDisk, done: list[bytes] | None = None) -> None:
    disk.mkdir("/data")
    disk.close(disk.open("/data/meta", create=True, writable=True))
    disk.fsync_dir("/data")
    disk.fsync_dir("/")
    fill_spares(disk, "/data")
    done = [] if done is None else done
    write_without_room(disk, "/data/file", b"o" * 100)
    done.append(b"o" * 100)
    for n in range(3):
        write_without_room(_full(disk), "/data/file", b"n" * (n + 1))
        done.append(b"n" * (n + 1))


def test_spares_grow_with_the_checkpoints_and_the_smallest_that_fits_is_taken(tmp_path):
    disk, data = RealDisk(), str(tmp_path)
    _prepare(disk, data)
    assert fill_spares(disk, data)
    (tmp_path / "recovery-points.1").write_bytes(bytes(50_000))
    assert fill_spares(disk, data)
    sizes = sorted(one.stat().st_size for one in (tmp_path / "spare").iterdir())
    assert sizes == [16 * 1024] * SMALL + [128 * 1024] * LARGE
    taken = [claim_spare(disk, f"{data}/topics/t/id1/topic.json", 20_000) for _ in range(LARGE + 1)]
    assert [one is None for one in taken] == [False] * LARGE + [True]
    assert claim_spare(disk, f"{data}/topics/t/id1/topic.json", 10) is not None


def test_a_topic_named_spare_is_not_taken_for_room(tmp_path):
    disk, data = RealDisk(), str(tmp_path)
    _prepare(disk, data)
    disk.mkdir(f"{data}/topics/spare/7")
    assert claim_spare(disk, f"{data}/topics/spare/id1/topic.json", 1) is None


def test_without_spare_files_the_error_of_the_full_disk_is_raised(tmp_path):
    _prepare(RealDisk(), str(tmp_path))
    with pytest.raises(OSError) as raised:
        write_without_room(_full(RealDisk()), f"{tmp_path}/file", b"x")
    assert raised.value.errno == errno.ENOSPC
    assert not (tmp_path / "file.tmp").exists()
