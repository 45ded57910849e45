"""The leader's copy of a damaged segment of a compacted log, and how it takes the segment's name.

The copy has other bytes than the segment had: each replica compacts its own log. So the swap is that of a compaction
(engine/log/segment_swap.py), and a crash at any operation leaves the old file, with its damage, or the copy.
engine/compaction/swapping.py decides and changes the log in memory. Invariant: a copy is put in place only if this log
is committed and durable up to the leader's high watermark: the leader removes a record for a later one below it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass

from engine.format import paths
from engine.format.checksum import Checksum, load_checksum, save_checksum
from engine.format.spare_files import write_without_room
from engine.log.damaged_ranges import encode_quarantine
from engine.log.segment import Segment
from engine.log.segment_swap import Swap, begin_swap, cancel_swap, put_in_place, remove_replaced, settle_swaps
from engine.partition.partition import Partition
from engine.runtime.disk import Disk

log = logging.getLogger("penstock.engine")


@dataclass(frozen=True, slots=True)
class LeadersCopy:
    """The leader's batches for the offsets of a damaged segment, in a durable file beside it.

    `cuts` are the partition's when the copy was begun. The leader may have removed records of it because of later ones
    below `superseded_below`.
    """

    segment: Segment
    file: Checksum
    cuts: int
    superseded_below: int


def may_replace(partition: Partition, copy: LeadersCopy) -> bool:
    """True if the damaged segment is still there, and so are all records for which the leader removed others."""
    segment, end = copy.segment, max(copy.segment.next_offset, copy.superseded_below)
    return (
        partition.offline is None
        and partition.cuts == copy.cuts
        and partition.compacted_end <= segment.base_offset
        and segment in partition.log.segments[:-1]
        and bool(segment.damage)
        and end <= min(partition.high_watermark, partition.durable_end)
    )


def swap_in(disk: Disk, copy: LeadersCopy) -> None:
    """Gives the copy the name of the segment, without the files that were derived from the old one. Blocking.

    Raises OSError: the old file has the name, and its damage is written down.
    """
    segment, directory = copy.segment, copy.segment.directory
    with suppress(OSError):
        assert segment.handle >= 0  # reads in progress go on in the old file
    sealed, rows = load_checksum(disk, segment.path), encode_quarantine(segment.damage)
    swap = Swap(segment.base_offset, (), copy.file, segment.last_append_ms, paths.REPAIRED)
    settle_swaps(disk, directory)
    try:
        begin_swap(disk, directory, swap)
        put_in_place(disk, directory, swap)
    except OSError:
        with suppress(OSError):  # else a restart finds the damage only when the file is read
            if sealed is not None:
                save_checksum(disk, segment.path, sealed)
            write_without_room(disk, segment.file(paths.QUARANTINE), rows)
        cancel_swap(disk, directory, swap)
        raise
    try:
        remove_replaced(disk, directory, swap)
    except OSError as error:  # the copy is in place; the next swap or start removes the swap file
        log.warning("a swap of a repair is not finished", extra={"path": directory, "reason": str(error)})
