"""A truncated log ends at a batch, stays truncated after any power loss, and continues as if it had never been
longer.
"""

from collections.abc import Iterator
from random import Random

import pytest

from engine.format import batch as record_batch
from engine.log.leader_epochs import record_epoch
from engine.log.log import Log, Run
from engine.log.recovery import Checkpoint, LastShutdown, open_log
from engine.log.truncation import batch_start, truncate_to
from engine.partition.writer import Group, PartitionWork, carry_out
from engine.testing.recording_disk import RecordingDisk
from engine.topic_settings import TopicSettings

DIRECTORY = "/data/t"
SETTINGS = TopicSettings(segment_bytes=240)  # three batches


def opened(disk: RecordingDisk, recovery_point: int = 0, last_shutdown: LastShutdown = LastShutdown.KILLED) -> Log:
    if disk.stat(DIRECTORY) is None:
        disk.mkdir(DIRECTORY)
        disk.fsync_dir("/data")
        disk.fsync_dir("/")
    return open_log(disk, DIRECTORY, Checkpoint(recovery_point), last_shutdown, now_ms=1)[0]


def batch(value: str, base_offset: int = 0, epoch: int = 0, count: int = 1) -> bytearray:
    made = record_batch.encode_values([value.encode()] * count, 1)
    record_batch.stamp(made, base_offset, epoch)
    return made


def run(one: bytearray) -> Run:
    return Run(memoryview(one), headers=[record_batch.read_header(one)])


def append(log: Log, *batches: bytearray, copies: bool = False) -> None:
    steps = (
        log.plan_follower_append([run(one) for one in batches], SETTINGS, 1)
        if copies
        else log.plan(list(batches), SETTINGS, 1)
    )
    work = PartitionWork("t/0", DIRECTORY, steps, sync=[step.segment for step in steps], sync_directory=True)
    carry_out(log.disk, Group([work]))
    assert work.write_error is None
    assert work.sync_error is None
    log.apply(steps)


def grown(disk: RecordingDisk) -> Log:
    """Two epochs, ten batches of two records, several segments."""
    log = opened(disk)
    for epoch, values in ((1, "abcdef"), (3, "ghij")):
        record_epoch(log, epoch, log.log_end)
        log.leader_epoch = epoch
        for value in values:
            append(log, batch(value, count=2))
    assert len(log.segments) > 2
    return log


def values(log: Log) -> str:
    found = ""
    for segment in log.segments:
        data = log.disk.pread(segment.handle, segment.size_bytes, 0)
        found += "".join(bytes(record.value or b"").decode() for record in record_batch.decode(data))
    return found


@pytest.mark.parametrize("offset", range(21))
def test_the_log_ends_at_the_batch_that_holds_the_offset(offset):
    log = grown(RecordingDisk())
    where = batch_start(log, offset)
    truncate_to(log, offset)
    assert log.log_end == where == offset - offset % 2
    assert values(log) == "aabbccddeeffgghhiijj"[: log.log_end]
    assert all(known.start_offset < log.log_end for known in log.epochs)


def test_what_was_cut_does_not_come_back_after_a_power_loss():
    disk = RecordingDisk()
    log = grown(disk)
    truncate_to(log, 7)
    for state in disk.crash_states(60, Random(1)):
        found = opened(state, recovery_point=6, last_shutdown=LastShutdown.POWER_LOSS)
        assert values(found) == "aabbcc"


def cut_off_in_the_middle() -> Iterator[tuple[int, RecordingDisk]]:
    """Yield disks whose truncation was interrupted at each of its operations."""
    counted = RecordingDisk()
    log = grown(counted)
    before = counted.operations
    truncate_to(log, 3)
    for operation in range(before + 1, counted.operations + 1):
        disk = RecordingDisk()
        log = grown(disk)
        disk.lose_power_after(operation)
        with pytest.raises(OSError, match="power"):
            truncate_to(log, 3)
        yield operation, disk


def test_a_power_loss_in_the_middle_leaves_a_prefix():
    for operation, disk in cut_off_in_the_middle():
        for state in disk.crash_states(12, Random(operation)):
            found = values(opened(state, recovery_point=2, last_shutdown=LastShutdown.POWER_LOSS))
            assert "aabbccddeeffgghhiijj".startswith(found)
            assert len(found) >= 2


def test_a_kill_in_the_middle_is_not_taken_for_corruption():
    for _, disk in cut_off_in_the_middle():
        after_kill = RecordingDisk(tree=disk._tree)
        assert "aabbccddeeffgghhiijj".startswith(values(opened(after_kill, recovery_point=2)))
