"""Truncates the end of a log: a follower drops records that its leader does not have.

Not recovery: no byte is in doubt here, the caller knows where the logs diverge. Does its I/O at once, in the calling
thread, and only while no group of the writer is in progress for the partition.
Invariants: the truncation is durable before this returns, so that truncated records cannot return behind other ones;
files are removed newest first, so that a kill in between leaves a shorter log and not one with a hole. Before, the
caller has lowered the recovery point to the new end, durably: a log that ends below its recovery point counts as
damaged.
"""

from __future__ import annotations

from engine.format import paths
from engine.format.index import SegmentIndex
from engine.log.epochs import truncated_from_end
from engine.log.leader_epochs import save_epochs
from engine.log.log import Log
from engine.log.segment import Segment, valid_headers


def batch_start(log: Log, offset: int) -> int:
    """Returns the end after a truncation at `offset`: batches stay whole. Changes nothing."""
    if offset >= log.log_end:
        return log.log_end
    segment = log.segment_of(offset)
    end_read = segment.begin_read()
    try:
        return _kept(segment, offset)[0]
    finally:
        end_read()


def truncate_to(log: Log, offset: int) -> None:
    """Ends the log at the start of the batch that holds `offset`. Beyond the end it drops only epochs without records.

    `offset` must not be below the first local one: such a log is reset (reset_to). Raises OSError.
    """
    assert offset >= log.segments[0].base_offset
    if offset < log.log_end:
        segment = log.segment_of(offset)
        _drop_after(log, segment)
        _cut(segment, offset)
        log.forget_recent()
    _note_end(log)


def reset_to(log: Log, offset: int, log_start: int) -> None:
    """Drop every record and continue at an offset, as Kafka's truncateFullyAndStartAt does. Raises OSError.

    `log_start` may be above it: records are deleted up to any offset, batches are copied whole. Or below it: the tiered
    store then has the records between.
    """
    first = Segment(log.disk, log.directory, offset)
    _drop_after(log, None)
    first.use_append_handle(log.disk.open(first.path, create=True, writable=True))
    log.disk.fsync_dir(log.directory)
    log.segments, log.log_start, log.epochs = [first], log_start, []
    log.forget_recent()
    save_epochs(log.disk, log.directory, [])


def _drop_after(log: Log, last: Segment | None) -> None:
    """Removes the segments behind `last`, or all of them if it is None."""
    while log.segments and log.segments[-1] is not last:
        segment = log.segments.pop()
        for suffix in (paths.LOG, *paths.DERIVED_SUFFIXES):
            if log.disk.stat(segment.file(suffix)) is not None:
                log.disk.unlink(segment.file(suffix))
        segment.mark_deleted()
    log.disk.fsync_dir(log.directory)


def _cut(segment: Segment, offset: int) -> None:
    end, size_bytes, index = _kept(segment, offset)
    disk = segment.disk
    for suffix in paths.DERIVED_SUFFIXES:  # it may have been sealed, and is active again
        if disk.stat(segment.file(suffix)) is not None:
            disk.unlink(segment.file(suffix))
    handle = disk.open(segment.path, writable=True)
    disk.truncate(handle, size_bytes)
    disk.fdatasync(handle)
    disk.fsync_dir(segment.directory)
    segment.shorten(handle, end, size_bytes, index)


def _kept(segment: Segment, offset: int) -> tuple[int, int, SegmentIndex]:
    """Returns the end, size and index of the batches before the one that holds `offset`."""
    index = SegmentIndex(segment.base_offset)
    end, size_bytes = segment.base_offset, 0
    for position, header in valid_headers(segment):
        if header.next_offset > offset:
            break
        index.add(header, position)
        end, size_bytes = header.next_offset, position + header.size_bytes
    return end, size_bytes, index


def _note_end(log: Log) -> None:
    """The log is durable first: epochs without a record do no harm, records without an epoch would."""
    epochs = truncated_from_end(log.epochs, log.log_end)
    if epochs != log.epochs:
        save_epochs(log.disk, log.directory, epochs)
        log.epochs = epochs
