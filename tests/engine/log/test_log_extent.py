"""The extent of a stopped node's log is what a start would keep, and reading it changes no byte."""

import pytest

from engine.format import paths
from engine.log.leader_epochs import record_epoch
from engine.log.log_extent import read_log_extent
from engine.log.recovery import Checkpoint
from engine.testing.recording_disk import RecordingDisk
from tests.engine.log.test_truncation import DIRECTORY, grown, opened


def read_all(disk: RecordingDisk) -> dict[str, bytes]:
    found = {}
    for name in disk.listdir(DIRECTORY):
        handle = disk.open(f"{DIRECTORY}/{name}")
        found[name] = disk.pread(handle, disk.size(handle), 0)
        disk.close(handle)
    return found


@pytest.mark.parametrize("cut_bytes", [0, 1, 30, 75, 100, 170])
@pytest.mark.parametrize("recovery_point", [0, 12])
def test_it_is_what_a_start_after_a_kill_keeps(cut_bytes, recovery_point):
    disk = RecordingDisk()
    log = grown(disk)
    record_epoch(log, 7, log.log_end)  # of a leader without a record
    last = log.segments[-1]
    disk.truncate(last.handle, max(0, last.size_bytes - cut_bytes))
    before = read_all(disk)
    extent = read_log_extent(disk, DIRECTORY, Checkpoint(recovery_point))
    assert read_all(disk) == before
    assert extent.problem == ""
    recovered = opened(disk, recovery_point)
    assert (extent.log_end, extent.epochs) == (recovered.log_end, recovered.epochs)
    assert extent.epochs[-1].epoch == 7


def test_a_log_that_ends_below_what_was_fsynced_is_a_problem():
    disk = RecordingDisk()
    log = grown(disk)
    end = log.log_end
    disk.truncate(log.segments[-1].handle, 1)
    assert "was fsynced" in read_log_extent(disk, DIRECTORY, Checkpoint(end)).problem


def test_an_empty_log_begins_at_its_start():
    disk = RecordingDisk()
    disk.mkdir(DIRECTORY)
    extent = read_log_extent(disk, DIRECTORY, Checkpoint(5, 5))
    assert (extent.log_end, extent.epochs, extent.problem) == (5, [], "")
    handle = disk.open(f"{DIRECTORY}/{paths.segment_file(5, paths.LOG)}", create=True, writable=True)
    disk.close(handle)
    assert read_log_extent(disk, DIRECTORY, Checkpoint(5, 5)).log_end == 5
