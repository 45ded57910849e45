"""Planted bugs of compaction, which runs must find."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

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
from tests.engine.compaction.planted import WithFirst, expired_at_once
from tests.simulation.run import Options
from tests.simulation.tables.run import run_tables, table_options
from tests.simulation.world.compaction import TableOptions


def _first_of_keys(memory_bytes: int, hash_key: bytes, keys_min: int = 0) -> WithFirst:
    return WithFirst(max(memory_bytes, 1 << 16), hash_key)


def _all_sealed(partition: Partition) -> list[Any]:
    """Return sealed segments, also those of records that may be truncated."""
    return list(partition.log.segments[:-1])


def _numbered_again(batch: Any, records: Any, codec: int, count: int, producer_id: int) -> bytearray:
    """Give the records that stay the first offsets of their batch."""
    kept = record_batch.decode_one(with_records(batch, records, codec, count, producer_id))
    again = record_batch.encode([(one.timestamp, one.key, one.value, []) for one in kept]) if count else b""
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
    for one in new.replaced:
        disk.unlink(one.path)
    disk.rename(new_file_path(directory, new.base_offset), new.replaced[0].path)
    disk.fsync_dir(directory)


_removing_first.__name__ = "_swap"  # the simulated thread knows a swap by this name


PLANTED: dict[str, tuple[tuple[object, str, object], str]] = {
    "a tombstone goes at once": ((Progress, "tombstones_expired_below", expired_at_once), "T"),
    "a tombstone's time begins before the last swap": ((Progress, "with_all", _begun_early), "T5"),
    "a tombstone does not wait for a replica that is away": ((Leader, "on_compacted", _own_end_only), "T2"),
    "a tombstone does not wait for another replica's compaction": ((Leader, "on_compacted", _own_end_only), "T5"),
    "an older value stays in place of the newest": ((log_compaction, "new_latest_offsets", _first_of_keys), "T"),
    "uncommitted records are compacted": ((swapping, "_replaceable", _all_sealed), ""),
    "offsets are numbered again": ((batch_compaction, "with_records", _numbered_again), "T1 moved"),
    "the old segments go before the new one has its name": ((swapping, "_swap", _removing_first), ""),
}


# Kinds of faults, seconds between them, delete_retention_ms, and crashes within a swap: where a bug shows soon
_WITH_FAULTS: dict[str, tuple[tuple[str, ...], float, int, float]] = {
    "a tombstone goes at once": (("kill",), 4.0, 1500, 0.0),
    "a tombstone's time begins before the last swap": (("kill",), 4.0, 1500, 0.0),
    "uncommitted records are compacted": (("isolate", "kill", "expire_session"), 0.4, 2500, 0.0),
    "a tombstone does not wait for a replica that is away": (("kill", "cut_two_ways", "lose_power"), 0.6, 1500, 0.0),
    "the old segments go before the new one has its name": (("kill",), 2.0, 2500, 0.05),
}


def plant(name: str) -> AbstractContextManager[object]:
    (where, what, mutant), _ = PLANTED[name]
    return patch.object(where, what, mutant)


def _options(name: str, seed: int) -> Options:
    found = table_options(seed)
    if name not in _WITH_FAULTS:
        return found
    kinds, fault_every_s, retention_ms, crashes = _WITH_FAULTS[name]
    table = TableOptions("compact", retention_ms, 0, min_cleanable_dirty_percent=1, check_s=0.1, crashes=crashes)
    return replace(found, kinds=kinds, fault_every_s=fault_every_s, table=table, retention_bytes=None)


def found_by_seed(name: str, seeds: range) -> tuple[int, str] | None:
    """Return the first seed whose run finds the planted bug, and the finding; None if no run finds it."""
    _, kind = PLANTED[name]
    with plant(name):
        for seed in seeds:
            for problem in run_tables(seed, options=_options(name, seed)).problems:
                if problem.startswith(kind):
                    return seed, problem
    return None
