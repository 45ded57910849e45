"""Planted bugs of compaction, which runs must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine.compaction import batch_compaction, log_compaction, swapping
from engine.compaction.log_compaction import NewSegment
from engine.compaction.progress import Progress
from engine.format import batch as record_batch
from engine.format.batch import HEADER_BYTES, Codec
from engine.format.batch_header import with_records
from engine.log.segment_swap import new_file_path
from engine.partition.partition import Partition
from engine.runtime.disk import Disk
from replication.cores.leader import Leader
from tests.checking.mutants import Mutant, patched
from tests.engine.compaction.planted import WithFirst, expired_at_once
from tests.simulation.run import Options, findings_of
from tests.simulation.tables.run import run_tables, table_options
from tests.simulation.world.compaction import TableOptions


def _first_of_keys(memory_bytes: int, hash_key: bytes, keys_min: int = 0) -> WithFirst:
    return WithFirst(max(memory_bytes, 1 << 16), hash_key)


def _all_sealed(partition: Partition) -> list[Any]:
    """Return sealed segments, also those of records that may be truncated."""
    return list(partition.log.segments[:-1])


def _numbered_again(batch: Any, records: Any, codec: int, count: int, producer_id: int) -> bytearray:
    """Give the records that stay the first offsets of their batch."""
    records_left = record_batch.decode_one(with_records(batch, records, codec, count, producer_id))
    again = (
        record_batch.encode([(record.timestamp, record.key, record.value, []) for record in records_left])
        if count
        else b""
    )
    return with_records(batch, memoryview(again)[HEADER_BYTES:], Codec.NONE, count, producer_id)


def _begun_early(self: Progress, compacted_by_all: int, now_ms: int, delete_retention_ms: int) -> Progress:
    """Date a round before its last swap, by half of the time that a tombstone stays."""
    return _with_all(self, compacted_by_all, now_ms - delete_retention_ms // 2, delete_retention_ms)


_with_all = Progress.with_all


def _own_end_only(self: Leader, end: int) -> None:
    """Take the end of the leader's compacted part for that of all replicas."""
    self.compacted_end = self.compacted_by_all = end


def _removing_first(disk: Disk, directory: str, new: NewSegment, modified_ms: int) -> None:
    """Remove the old segments, and then give the new one its name."""
    for segment in new.replaced:
        disk.unlink(segment.path)
    disk.rename(new_file_path(directory, new.base_offset), new.replaced[0].path)
    disk.fsync_dir(directory)


_removing_first.__name__ = "_swap"  # the simulated thread knows a swap by this name


IN_RUNS = findings_of(run_tables, table_options)


def _in_runs(
    kinds: tuple[str, ...], fault_every_s: float, delete_retention_ms: int, crashes: float = 0.0
) -> Callable[[int], list[str]]:
    """Make runs where a bug shows soon. `crashes`: how often a node ends within a swap."""
    table = TableOptions("compact", delete_retention_ms, 0, min_cleanable_dirty_percent=1, check_s=0.1, crashes=crashes)

    def options(seed: int) -> Options:
        return replace(table_options(seed), kinds=kinds, fault_every_s=fault_every_s, table=table, retention_bytes=None)

    return findings_of(run_tables, options)


MUTANTS = {
    "a tombstone goes at once": Mutant(
        patched(Progress, "tombstones_expired_below", expired_at_once), _in_runs(("kill",), 4.0, 1500), "T"
    ),
    "a tombstone's time begins before the last swap": Mutant(
        patched(Progress, "with_all", _begun_early), _in_runs(("kill",), 4.0, 1500), "T5"
    ),
    "a tombstone does not wait for a replica that is away": Mutant(
        patched(Leader, "on_compacted", _own_end_only),
        _in_runs(("kill", "cut_two_ways", "lose_power"), 0.6, 1500),
        "T2",
        first_seed=11,
    ),
    "a tombstone does not wait for another replica's compaction": Mutant(
        patched(Leader, "on_compacted", _own_end_only),
        IN_RUNS,
        "T5",
        first_seed=18,
        is_rare=True,
    ),
    "an older value stays in place of the newest": Mutant(
        patched(log_compaction, "new_latest_offsets", _first_of_keys),
        IN_RUNS,
        "T",
    ),
    "uncommitted records are compacted": Mutant(
        patched(swapping, "_replaceable", _all_sealed),
        _in_runs(("isolate", "kill", "expire_session"), 0.4, 2500),
        first_seed=1,
    ),
    "offsets are numbered again": Mutant(
        patched(batch_compaction, "with_records", _numbered_again), IN_RUNS, "T1 moved"
    ),
    "the old segments go before the new one has its name": Mutant(
        patched(swapping, "_swap", _removing_first),
        _in_runs(("kill",), 2.0, 2500, crashes=0.05),
        "AssertionError: T6 swap",
        first_seed=2,
    ),
}
