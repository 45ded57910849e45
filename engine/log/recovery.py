"""Opens a partition's log after any kind of stop: decides which bytes of the files are the log.

The rules (those of Kafka's LogLoader), in order:
- (0) an interrupted swap of compacted segments is completed (engine/log/segment_swap.py);
- (1) leftovers of interrupted work (.tmp, an index without its segment) are removed, if their names are the engine's;
- (2) after a clean stop sizes are trusted;
- (3) otherwise every segment that reaches beyond the recovery point is scanned batch by batch, CRC included, and the
  log is truncated at the first invalid byte, with all later segments;
- (4) but bytes below the recovery point were fsynced: bad or missing ones are corruption, not a torn tail; nothing is
  truncated, and the partition stays closed until it is repaired;
- (5) the same if a valid batch follows the bad bytes and only the process was killed: the page cache was complete, so a
  torn write can only be the last one. After a power loss a hole in unsynced bytes is legal; the log is truncated there,
  and the truncation is logged;
- (6) the same as (5), after any stop, if a valid batch of another offset is where the next one must be: no torn write
  does that, the file belongs to another log.
Derived files are never evidence of records: scanned segments get new indexes. A derived file without a `.log` between
two segments shows that one is missing.
Invariant: when this returns, the remaining log is durable before any append or read. Bytes beyond the recovery point
are rewritten before their fsync: after a failed fsync of the last run the kernel would have marked their pages clean,
and an fsync alone would not write them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from engine.errors import Corrupt
from engine.format import batch as record_batch
from engine.format import paths
from engine.format.batch import HEADER_BYTES
from engine.format.index import SegmentIndex
from engine.log.corruption_probe import find_batch_after, other_batch_at
from engine.log.damaged_ranges import Damage, decode_quarantine
from engine.log.epochs import EpochStart, with_epoch
from engine.log.leader_epochs import can_only_be_0, recovered_epochs
from engine.log.log import Log
from engine.log.segment import Segment, can_follow, headers_after_index
from engine.log.segment_swap import finish_swaps
from engine.runtime.disk import Disk, FileKind, read_file, write_fully

log = logging.getLogger("penstock.engine")

SCAN_BYTES = 256 * 1024  # fits a core's cache: at 8 MiB a scan took 1.2 times the CPU, rewriting 1.5 times

_OFFSET_BYTES = 8  # at the front of a batch
_SECTOR_BYTES = 512  # the least that a disk writes or loses


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of a recovery, for the log and the metrics; the sum over partitions is that of a start."""

    scanned_bytes: int = 0
    truncated_bytes: int = 0
    dropped_segments: int = 0
    mid_log_truncations: int = 0  # truncations with valid batches behind them, after a power loss
    new_logs: int = 0  # in directories without a file

    def __add__(self, other: RecoveryReport) -> RecoveryReport:
        return RecoveryReport(
            self.scanned_bytes + other.scanned_bytes,
            self.truncated_bytes + other.truncated_bytes,
            self.dropped_segments + other.dropped_segments,
            self.mid_log_truncations + other.mid_log_truncations,
            self.new_logs + other.new_logs,
        )


class LastShutdown(Enum):
    """How the last run ended. The value is the text for the log.

    After a kill the page cache is complete, so only the last write can be torn. After a power loss any unsynced byte
    may be missing, whatever follows it.
    """

    CLEAN = "clean"
    KILLED = "killed"
    POWER_LOSS = "power lost"


class Checkpoint(NamedTuple):
    """The durable positions of a partition when it is opened."""

    recovery_point: int = 0
    log_start: int = 0


@dataclass(frozen=True, slots=True)
class _Scan:
    index: SegmentIndex
    valid_bytes: int
    next_offset: int
    epochs: list[EpochStart]
    producer_id_max: int  # -1 without one


def open_log(
    disk: Disk,
    directory: str,
    checkpoint: Checkpoint,
    last_shutdown: LastShutdown,
    *,
    now_ms: int,
    on_scanned: Callable[[int], None] = lambda _: None,
) -> tuple[Log, RecoveryReport]:
    """Opens the log of a partition's directory; an empty directory is an empty log, whose file the first append makes.

    All bytes below the checkpoint's recovery point were fsynced. Raises Corrupt if such bytes are bad or missing.
    Calls `on_scanned` with the number of scanned bytes, in this thread.
    """
    recovery_point, log_start = checkpoint
    if not (names := disk.listdir(directory)):
        disk.mkdir(directory)
        return _new_log(disk, directory, checkpoint, now_ms), RecoveryReport(new_logs=1)
    if any(paths.swap_base_of(name) is not None for name in names):
        finish_swaps(disk, directory)
        names = disk.listdir(directory)
    missing = _missing_segments(names, recovery_point)
    names = _without_leftovers(disk, directory, names, missing)
    segments = _list_segments(disk, directory, names, missing)
    _restore_ages(segments, now_ms)
    report = RecoveryReport()
    epochs: list[EpochStart] = []
    if segments and last_shutdown is not LastShutdown.CLEAN:
        segments, report, epochs = _recover(disk, directory, segments, recovery_point, last_shutdown, on_scanned)
    elif segments:
        epochs = _load_trusted(segments)
    if not segments:
        segments = [_first_segment(disk, directory, checkpoint)]
    active = segments[-1]
    if active.next_offset < recovery_point:
        raise Corrupt(
            f"{directory}: the log ends at {active.next_offset}, below the recovery point {recovery_point}",
            hint="restore the partition; nothing was cut",
        )
    if not epochs and active.next_offset > segments[0].base_offset and can_only_be_0(disk, directory):
        epochs = [EpochStart(0, segments[0].base_offset)]  # of batches that needed no check
    if epochs and epochs[0].epoch == 0:  # no epoch is before 0, so it began with the log
        epochs = [EpochStart(0, segments[0].base_offset), *epochs[1:]]
    epochs = recovered_epochs(disk, directory, epochs, active.next_offset)
    if active.is_made:
        _open_for_append(disk, active)
    active.created_ms = now_ms if active.size_bytes == 0 else active.last_append_ms
    log = Log(
        disk,
        directory,
        segments,
        log_start=max(log_start, 0),
        leader_epoch=epochs[-1].epoch if epochs else 0,
        epochs=epochs,
    )
    return log, report


def _missing_segments(names: list[str], recovery_point: int) -> list[int]:
    """Returns the base offsets of sealed segments whose durable `.log` file is missing.

    Derived files are the sign: between two existing segments, nothing removes a segment and leaves its derived files.
    Trimming removes the first segments, truncation the last ones, and both may be interrupted.
    """
    bases = sorted(base for name in names if (base := paths.base_offset_of(name)) is not None)
    if not bases:
        return []
    partition_files = filter(paths.is_partition_file, names)
    recorded = {
        int(stem) for stem, suffix in map(os.path.splitext, partition_files) if suffix in paths.DERIVED_SUFFIXES
    }
    between = sorted(base for base in recorded - set(bases) if bases[0] < base < bases[-1])
    ends = [min(base for base in (*between[at + 1 :], *bases) if base > begin) for at, begin in enumerate(between)]
    return [base for base, end in zip(between, ends, strict=True) if end <= recovery_point]


def _without_leftovers(disk: Disk, directory: str, names: list[str], missing: list[int]) -> list[str]:
    """Removes leftovers; returns the other names.

    Derived files without their segment are leftovers: they would pass for those of the next segment of that name.
    """
    logs = {name.removesuffix(paths.LOG) for name in names if name.endswith(paths.LOG)}
    logs |= {paths.segment_file(base, "") for base in missing}
    segments = []
    for name in names:
        path = os.path.join(directory, name)
        if paths.is_leftover(name, logs) and disk.kind(path) is FileKind.FILE:
            disk.unlink(path)
        else:
            segments.append(name)
    return segments


def _list_segments(disk: Disk, directory: str, names: list[str], missing: list[int]) -> list[Segment]:
    """Includes missing segments, as damaged from their first offset to their last."""
    base_offsets = [base for name in names if (base := paths.base_offset_of(name)) is not None]
    segments = []
    for base_offset in sorted({*base_offsets, *missing}):
        path = os.path.join(directory, paths.segment_file(base_offset, paths.LOG))
        stat = disk.stat(path)
        if base_offset in base_offsets and (stat is None or stat.is_dir):  # the name exists
            raise Corrupt(f"{path} is not a file that can be read", hint="restore the file; nothing was changed")
        segment = Segment(disk, directory, base_offset, size_bytes=0 if stat is None else stat.size_bytes)
        segment.last_append_ms = 0 if stat is None else stat.modified_ms
        segments.append(segment)
    for segment, following in pairwise(segments):
        segment.next_offset = following.base_offset
    for segment in segments[:-1]:
        if segment.base_offset in missing:
            segment.damage = (Damage(segment.base_offset, segment.next_offset, 0, 0),)
            segment.mark_lost()
            extra = {"segment": segment.path, "first_offset": segment.base_offset, "end_offset": segment.next_offset}
            log.error("a segment file is missing", extra=extra)
        elif os.path.basename(segment.file(paths.QUARANTINE)) in names:
            data = read_file(disk, segment.file(paths.QUARANTINE))
            segment.damage = decode_quarantine(data, segment.base_offset, segment.next_offset, segment.size_bytes)
            if segment.damage and not segment.size_bytes:
                segment.mark_lost()
    for segment, following in reversed(list(pairwise(segments))):
        segment.last_append_ms = segment.last_append_ms or following.last_append_ms  # a missing segment keeps its age
    return segments


def _restore_ages(segments: list[Segment], now_ms: int) -> None:
    """Ages continue from the log's last write: a file's time is comparable to that of another file of the same log, and
    not to a clock that may have been set since. So the time while the node was stopped does not count.
    An empty file has the time of a roll, at which nothing was written.
    """
    last_write_ms = max((segment.last_append_ms for segment in segments if segment.size_bytes), default=0)
    for segment in segments:
        segment.last_append_ms += now_ms - last_write_ms


def _load_trusted(segments: list[Segment]) -> list[EpochStart]:
    """After a clean stop only the end of the last segment is looked up. Returns its leader epochs."""
    active = segments[-1]
    epochs: list[EpochStart] = []
    for _, header in headers_after_index(active, active.index):
        active.next_offset = header.next_offset
        epochs = with_epoch(epochs, header.leader_epoch, header.base_offset)
    return epochs


def _recover(
    disk: Disk,
    directory: str,
    segments: list[Segment],
    recovery_point: int,
    last_shutdown: LastShutdown,
    on_scanned: Callable[[int], None],
) -> tuple[list[Segment], RecoveryReport, list[EpochStart]]:
    recovered: list[Segment] = []
    epochs: list[EpochStart] = []
    scanned = cut = mid_log_truncations = 0
    for at, segment in enumerate(segments):
        is_last = at == len(segments) - 1
        is_known = bool(segment.damage) and last_shutdown is LastShutdown.KILLED  # every written byte is there
        if not is_last and (segment.next_offset <= recovery_point or is_known):
            recovered.append(segment)
            continue
        expected_base = recovered[-1].next_offset if recovered else segment.base_offset
        if segment.base_offset != expected_base:
            break
        scan = scan_segment(segment, on_scanned)
        scanned += segment.size_bytes
        is_whole = scan.valid_bytes == segment.size_bytes and (is_last or scan.next_offset == segment.next_offset)
        if not is_whole:
            mid_log_truncations += _classify_damage(segment, scan, segments[at + 1 :], recovery_point, last_shutdown)
        cut += segment.size_bytes - scan.valid_bytes
        for epoch, start in scan.epochs:
            epochs = with_epoch(epochs, epoch, start)
        _cut(disk, segment, scan, scan.index.position_at_or_before(recovery_point))
        recovered.append(segment)
        if not is_whole:
            break
    dropped = segments[len(recovered) :]
    if dropped and dropped[0].base_offset < recovery_point:
        raise Corrupt(f"{dropped[0].path}: a segment before it is missing, below the recovery point {recovery_point}")
    _remove(disk, directory, dropped)
    cut += sum(segment.size_bytes for segment in dropped)
    return recovered, RecoveryReport(scanned, cut, len(dropped), mid_log_truncations), epochs


def _classify_damage(
    segment: Segment, scan: _Scan, later: list[Segment], recovery_point: int, last_shutdown: LastShutdown
) -> bool:
    """Returns whether the bytes to truncate hold valid batches. Raises Corrupt where truncation is forbidden."""
    text = f"{segment.path}: bad bytes at {scan.valid_bytes}, offset {scan.next_offset}"
    hint = "restore the partition; nothing was cut"
    if scan.next_offset < recovery_point:
        raise Corrupt(f"{text}, below the recovery point {recovery_point}", hint=hint)
    if later and scan.next_offset > segment.next_offset:  # no crash writes beyond a roll: the file is foreign
        text = f"{segment.path}: batches up to offset {scan.next_offset}, and the next segment begins at"
        raise Corrupt(f"{text} {segment.next_offset}", hint=hint)
    other = other_batch_at(segment, scan.valid_bytes, scan.next_offset)
    if other is not None and not (
        last_shutdown is LastShutdown.POWER_LOSS and _is_cut_off_before(scan.valid_bytes, other)
    ):
        text = (
            f"{segment.path}: a whole batch of offset {other} at {scan.valid_bytes}, where {scan.next_offset} is next"
        )
        raise Corrupt(text, hint=hint)
    behind = find_batch_after(segment, scan.valid_bytes, scan.next_offset, later)
    if behind is not None and last_shutdown is LastShutdown.KILLED:
        raise Corrupt(f"{text}, but {behind} is whole, and the power was not lost", hint=hint)
    return behind is not None


def _is_cut_off_before(position: int, offset: int) -> bool:
    """True if a power loss can explain this offset: it was in the sector before, which was not written."""
    return offset == 0 and (position + _OFFSET_BYTES) % _SECTOR_BYTES == 0


def scan_segment(segment: Segment, on_scanned: Callable[[int], None] = lambda _: None) -> _Scan:
    """Walks a segment from its first byte as far as batches are complete, in order and have valid CRCs.

    An all-zero header (a tail that was allocated but never written) ends the log, and so does a batch with another
    offset than the expected one.
    """
    index = SegmentIndex(segment.base_offset)
    position, expected = 0, segment.base_offset
    epochs: list[EpochStart] = []
    producer_id_max = -1
    window, window_at = b"", 0
    while position + HEADER_BYTES <= segment.size_bytes:
        if position + HEADER_BYTES > window_at + len(window):
            on_scanned(len(window))
            window, window_at = _window(segment, position, SCAN_BYTES), position
        header = record_batch.read_header(window, position - window_at)
        if not can_follow(header, expected, segment.size_bytes - position):
            break
        if position + header.size_bytes > window_at + len(window):
            window, window_at = _window(segment, position, max(SCAN_BYTES, header.size_bytes)), position
        if len(window) < header.size_bytes or not record_batch.has_valid_crc(window, position - window_at, header):
            break
        index.add(header, position)
        position += header.size_bytes
        if not epochs or header.leader_epoch > epochs[-1].epoch:
            epochs = with_epoch(epochs, header.leader_epoch, header.base_offset)
        if header.producer_id > producer_id_max:
            producer_id_max = header.producer_id
        expected = header.next_offset
    on_scanned(len(window))
    return _Scan(index, position, expected, epochs, producer_id_max)


def _window(segment: Segment, position: int, length: int) -> bytes:
    return segment.pread(length, position)


def _cut(disk: Disk, segment: Segment, scan: _Scan, rewrite_from: int) -> None:
    """Truncate the segment to the scanned batches, durably, and drop its indexes, which are rebuilt."""
    _unlink_derived(disk, segment)
    segment.close()
    handle = disk.open(segment.path, writable=True)
    try:
        disk.truncate(handle, scan.valid_bytes)
        for position in range(rewrite_from, scan.valid_bytes, SCAN_BYTES):
            length = min(SCAN_BYTES, scan.valid_bytes - position)
            write_fully(disk, handle, disk.pread(handle, length, position), position)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    disk.fsync_dir(segment.directory)
    segment.size_bytes, segment.next_offset = scan.valid_bytes, scan.next_offset
    segment.set_index(scan.index)
    segment.damage = ()


def _remove(disk: Disk, directory: str, segments: list[Segment]) -> None:
    for segment in segments:
        segment.close()
        for suffix in paths.SEGMENT_SUFFIXES:
            if disk.stat(segment.file(suffix)) is not None:
                disk.unlink(segment.file(suffix))
    if segments:
        disk.fsync_dir(directory)


def _new_log(disk: Disk, directory: str, checkpoint: Checkpoint, now_ms: int) -> Log:
    """Returns the log of a directory without a file, which has nothing to look up."""
    segment = _first_segment(disk, directory, checkpoint)
    segment.created_ms = now_ms
    return Log(disk, directory, [segment], log_start=max(checkpoint.log_start, 0), leader_epoch=0)


def _first_segment(disk: Disk, directory: str, checkpoint: Checkpoint) -> Segment:
    """The first append makes its file, whose entry becomes durable with the records. Raises Corrupt."""
    recovery_point, log_start = checkpoint
    if recovery_point > log_start:
        raise Corrupt(f"{directory}: no segment is left, but everything below {recovery_point} was fsynced")
    segment = Segment(disk, directory, log_start)
    segment.make_at_append()
    return segment


def _open_for_append(disk: Disk, segment: Segment) -> None:
    """Removes derived files, durably: a power loss must not leave them beside a segment that has grown since."""
    _ = segment.index  # loaded while the file is still as the indexes describe it
    if _unlink_derived(disk, segment):
        disk.fsync_dir(segment.directory)
    segment.close()
    segment.use_append_handle(disk.open(segment.path, writable=True))


def _unlink_derived(disk: Disk, segment: Segment) -> bool:
    """Returns whether there were any."""
    derived = [file for file in map(segment.file, paths.DERIVED_SUFFIXES) if disk.stat(file) is not None]
    for file in derived:
        disk.unlink(file)
    return bool(derived)
