"""The real partition against a list, with steps and crashes that hypothesis chooses; mutants check the check.

`make state-machine-long` runs more steps. A failure prints its steps as a program.
"""

import os
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from engine.cleaning import log_start as trimming
from engine.cleaning import retention
from engine.directory.log_directory_manager import LogDirectoryManager
from engine.errors import EngineError
from engine.format import batch as record_batch
from engine.log import recovery
from engine.partition import reader, writer
from engine.shard import shard
from tests.engine.crash.test_mutants import points_ahead_of_the_sync, sync_no_directory, sync_nothing
from tests.engine.crash.twin import PartitionAndTwin

SHORT = 25
EXAMPLES = int(os.environ.get("PENSTOCK_TEST_EXAMPLES", SHORT))
STEPS = 30
SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def test_a_partition_is_what_its_twin_is():
    run_state_machine_as_test(
        PartitionAndTwin,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=SLOW_IS_FINE
        ),
    )


def cut_one_batch_too_much(segment, on_scanned=lambda _: None, scan=recovery.scan_segment):
    found = scan(segment, on_scanned)
    batches = list(record_batch.walk(segment.disk.pread(segment.handle, found.valid_bytes, 0)))
    if not batches:
        return found
    position, header = batches[-1]
    return recovery._Scan(found.index, position, header.base_offset, found.epochs, -1)


def expired_at_any_age(log, limit, *_):
    sealed = [segment for segment in log.segments[:-1] if segment.next_offset <= limit]
    return sealed[-1].next_offset if sealed else None


class ForgetfulTrimmer(trimming.LogStartAdvancer):
    """Raises log_start without making it durable."""

    def __init__(self, disk, executor, _, saved):
        async def save_nothing(partition, log_start) -> None:
            """Planted: saves nothing."""
            partition.log.log_start = max(partition.log.log_start, log_start)

        super().__init__(disk, executor, save_nothing, saved)


def batch_behind_left_out(span, offset, data, *bounds, checked=reader._checked):
    chunk = checked(span, offset, data, *bounds)
    positions = [position for position, _ in record_batch.walk(chunk.data)]
    return chunk if len(positions) == 1 else reader.Chunk(chunk.data[: positions[-1]], chunk.next_offset)


MUTANTS = {
    "acks before the sync": (writer, "_sync", sync_nothing),
    "one batch too much cut at recovery": (recovery, "scan_segment", cut_one_batch_too_much),
    "a raised log_start is not saved": (shard, "LogStartAdvancer", ForgetfulTrimmer),
    "a read that leaves a batch out": (reader, "_checked", batch_behind_left_out),
}
# These need hundreds of examples. test_mutants.py plants them before the stories that find them at once.
SLOW_MUTANTS = {
    "checksums not looked at": (recovery.record_batch, "has_valid_crc", lambda *_: True),
    "everything sealed expires": (retention, "_end_of_expired", expired_at_any_age),
    "a new segment's directory is not synced": (writer, "_sync", sync_no_directory),
    "recovery points ahead of the sync": (LogDirectoryManager, "_checkpoints_in", points_ahead_of_the_sync),
}
if EXAMPLES > SHORT:
    MUTANTS |= SLOW_MUTANTS


def assert_caught(machine, owner, attribute, mutant):
    """Assert that some steps of the machine fail with the mutant in place."""
    quick = settings(
        max_examples=1600,  # stops at the first failure; some mutants need a sync at a certain time
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=SLOW_IS_FINE,
    )
    with mock.patch.object(owner, attribute, mutant), pytest.raises((AssertionError, EngineError)):
        run_state_machine_as_test(machine, settings=quick)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_partition_is_caught(name):
    assert_caught(PartitionAndTwin, *MUTANTS[name])
