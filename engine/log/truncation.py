"""Takes the end off a log: what a follower does with records that its leader does not have.

Not recovery: nothing is in doubt here, the caller has been told where the logs part. Does its I/O at once, in whichever
thread calls, and only while no group of the writer is under way for the partition.
Invariants: what was cut is gone durably before this returns, so that it cannot come back behind other records; files
go newest first, so that a kill in between leaves a shorter log and not one with a hole. The caller has lowered the
recovery point to the new end, durably, before: a log that ends below its recovery point is taken for damaged.
"""

from __future__ import annotations

from engine.format import paths
from engine.format.index import SegmentIndex
from engine.log.epochs import truncated_from_end
from engine.log.leader_epochs import save_epochs
from engine.log.log import Log
from engine.log.segment import Segment, sound_headers


def batch_start(log: Log, offset: int) -> int:
    """Where a cut at `offset` would leave the end: batches are kept whole or not at all. Changes nothing."""
    if offset >= log.log_end:
        return log.log_end
    segment = log.segment_of(offset)
    end_read = segment.begin_read()
    try:
        return _kept(segment, offset)[0]
    finally:
        end_read()


def truncate_to(log: Log, offset: int) -> None:
    """End the log at the start of the batch that holds `offset`. Beyond the end only epochs without records go.

    `offset` is not below the first local one: such a log is begun anew (restart_at). Raises OSError.
    """
    assert offset >= log.segments[0].base_offset
    if offset < log.log_end:
        segment = log.segment_of(offset)
        _drop_behind(log, segment)
        _cut(segment, offset)
        log.shortened()
    _note_end(log)


def restart_at(log: Log, offset: int, log_start: int) -> None:
    """Forget every record and go on from an offset, as when the leader has none of those before it. Raises OSError.

    `log_start` may lie behind it: records are deleted in front of any offset, batches are copied whole. Or before it:
    then the tiered store has what lies between.
    """
    first = Segment(log.disk, log.directory, offset)
    _drop_behind(log, None)
    first.opened_for_append(log.disk.open(first.path, create=True, writable=True))
    log.disk.fsync_dir(log.directory)
    log.segments, log.log_start, log.epochs = [first], log_start, []
    log.shortened()
    save_epochs(log.disk, log.directory, [])


def _drop_behind(log: Log, last: Segment | None) -> None:
    """Remove the segments behind `last`, all of them when that is None."""
    while log.segments and log.segments[-1] is not last:
        segment = log.segments.pop()
        for suffix in (paths.LOG, *paths.DERIVED_SUFFIXES):
            if log.disk.stat(segment.file(suffix)) is not None:
                log.disk.unlink(segment.file(suffix))
        segment.deleted()
    log.disk.fsync_dir(log.directory)


def _cut(segment: Segment, offset: int) -> None:
    end, size_bytes, index = _kept(segment, offset)
    disk = segment.disk
    for suffix in paths.DERIVED_SUFFIXES:  # it was sealed, perhaps, and is not any more
        if disk.stat(segment.file(suffix)) is not None:
            disk.unlink(segment.file(suffix))
    handle = disk.open(segment.path, writable=True)
    disk.truncate(handle, size_bytes)
    disk.fdatasync(handle)
    disk.fsync_dir(segment.directory)
    segment.shortened(handle, end, size_bytes, index)


def _kept(segment: Segment, offset: int) -> tuple[int, int, SegmentIndex]:
    """What remains in front of the batch that holds `offset`: its end, its size, its index."""
    index = SegmentIndex(segment.base_offset)
    end, size_bytes = segment.base_offset, 0
    for position, header in sound_headers(segment):
        if header.next_offset > offset:
            break
        index.add(header, position)
        end, size_bytes = header.next_offset, position + header.size_bytes
    return end, size_bytes, index


def _note_end(log: Log) -> None:
    """The log is on the disk first: epochs that it has no record of harm nobody, records without an epoch would."""
    epochs = truncated_from_end(log.epochs, log.log_end)
    if epochs != log.epochs:
        save_epochs(log.disk, log.directory, epochs)
        log.epochs = epochs
