"""Reads how far the log of a stopped node reaches, without changing a byte: what `open_log` would keep.

For inventories of data directories (replication/rebuild). Scans, with CRC, the last segment and each one that reaches
beyond the recovery point. Decides nothing about damage: a partition that recovery would refuse has a `problem`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from engine.format import paths
from engine.log.epochs import EpochStart, with_epoch
from engine.log.leader_epochs import can_only_be_0, load_epochs, merged_epochs
from engine.log.recovery import Checkpoint, scan_segment
from engine.log.segment import Segment
from engine.runtime.disk import Disk


@dataclass(frozen=True, slots=True)
class LogExtent:
    """`producer_id_max` is the greatest producer id in the scanned segments, -1 without one."""

    epochs: list[EpochStart]
    log_end: int
    producer_id_max: int = -1
    problem: str = ""


def read_log_extent(disk: Disk, directory: str, checkpoint: Checkpoint) -> LogExtent:
    """Reads the epochs and the end of a log. Blocks. Raises OSError."""
    segments = _segments(disk, directory)
    end, seen, ids, problem = checkpoint.log_start, list[EpochStart](), -1, ""
    for segment, following in pairwise([*segments, None]):
        assert segment is not None
        if following is not None and following.base_offset <= checkpoint.recovery_point:
            continue
        scan = scan_segment(segment)
        segment.close()
        for epoch, start in scan.epochs:
            seen = with_epoch(seen, epoch, start)
        end, ids = scan.next_offset, max(ids, scan.producer_id_max)
        if following is not None and scan.next_offset != following.base_offset:
            break
    if end < checkpoint.recovery_point:
        problem = f"its log ends at {end}, and everything below {checkpoint.recovery_point} was fsynced"
    base = segments[0].base_offset if segments else end
    if not seen and end > base and can_only_be_0(disk, directory):
        seen = [EpochStart(0, base)]
    epochs = merged_epochs(load_epochs(disk, directory), seen, end)
    return LogExtent(epochs, end, ids, problem)


def _segments(disk: Disk, directory: str) -> list[Segment]:
    bases = sorted(base for name in disk.listdir(directory) if (base := paths.base_offset_of(name)) is not None)
    segments = []
    for base in bases:
        stat = disk.stat(f"{directory}/{paths.segment_file(base, paths.LOG)}")
        segments.append(Segment(disk, directory, base, size_bytes=0 if stat is None else stat.size_bytes))
    return segments
