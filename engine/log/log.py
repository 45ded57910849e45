"""A partition's log as a sequence of segments: assigns offsets, locates them, decides when to roll.

Decides only: engine/partition/writer.py writes, engine/partition/reader.py reads; this file plans for both and records
the completed writes. Knows neither acknowledgements nor readers.
Invariants: segments are contiguous (one's next_offset is the next one's base_offset); the last is the active one;
log_start <= log_end; only a plan assigns offsets, and one plan at a time is in progress.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from engine.errors import UnexpectedOffset
from engine.format import batch as record_batch
from engine.format.batch import Buffer, Header
from engine.format.index import SegmentIndex
from engine.log.batch_cache import BatchCache
from engine.log.damaged_ranges import check_undamaged, end_before, start_after
from engine.log.epochs import EpochStart
from engine.log.segment import Segment
from engine.runtime.disk import Disk
from engine.topic_settings import TopicSettings

RELATIVE_OFFSET_MAX = 2**31 - 1
RECENT_MAX = 64  # tail readers ask for the start of a recent write; the index has an entry every 4 KiB only

JOINED_MIN, JOINED_BYTES_MAX = 2, 64 * 1024  # more buffers, and at most as many bytes, are written as one


class BytePosition(NamedTuple):
    """A batch boundary: the segment by its base offset, and a byte position in it."""

    base_offset: int
    position: int


class ReadSpan(NamedTuple):
    """Whole batches of one segment that hold the requested offset, perhaps after some before it.

    `start_offset` is the base offset of the first one, `next_offset` follows the last one. `segment_index` is the index
    at the time of the call: the segment may have another one when the bytes arrive.
    """

    segment: Segment
    segment_index: SegmentIndex
    start: int
    end: int
    next_offset: int
    start_offset: int


@dataclass(slots=True)
class Write:
    """Write buffers one after another from a position of a segment's file."""

    segment: Segment
    position: int
    now_ms: int
    buffers: list[Buffer] = field(default_factory=list)
    headers: list[Header] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.buffers))


@dataclass(slots=True)
class Roll:
    """Start a new active segment; the writer makes the file."""

    segment: Segment


@dataclass(slots=True)
class Run:
    """Contiguous batches of a leader's response, from `start` on; they may begin a segment of the leader."""

    data: memoryview
    starts_segment: bool = False
    start: int = 0
    headers: list[Header] = field(default_factory=list)

    def add(self, position: int, header: Header) -> None:
        if not self.headers:
            self.start = position
        self.headers.append(header)


class Log:
    """The segments of one partition, oldest first, and the positions log_start and log_end."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: list[Segment],
        *,
        log_start: int,
        leader_epoch: int,
        epochs: Sequence[EpochStart] = (),
    ) -> None:
        assert segments, "a log has at least its active segment"
        assert all(a.next_offset == b.base_offset for a, b in pairwise(segments))
        self.disk = disk
        self.directory = directory
        self.segments = segments
        self.log_start = log_start
        self.leader_epoch = leader_epoch  # the greatest ever used; stamped into planned batches
        self.epochs = list(epochs)  # of the stored records, and of a leader that has started
        self._recent: dict[int, BytePosition] = {}  # where the last writes began, by offset
        self.batch_cache: BatchCache | None = None  # of a leader whose followers fetch

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start}..{self.log_end}, {len(self.segments)} segments)"

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def log_end(self) -> int:
        return self.segments[-1].next_offset

    @property
    def end_position(self) -> BytePosition:
        active = self.segments[-1]
        return BytePosition(active.base_offset, active.size_bytes)

    @property
    def local_log_start(self) -> int:
        """The first offset on this disk; the store has the records from log_start to it."""
        return max(self.log_start, self.segments[0].base_offset)

    @property
    def sealed_end(self) -> int:
        return self.segments[-1].base_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def plan(self, batches: list[bytes | bytearray], settings: TopicSettings, now_ms: int) -> list[Write | Roll]:
        """Assign offsets to the batches, in order, and return the writes and rolls.

        Changes only the batches' stamps, so that a failed plan can be dropped.
        """
        steps: list[Write | Roll] = []
        write, next_offset = Write(self.active, self.active.size_bytes, now_ms), self.log_end
        position = write.position
        for data in batches:
            size_bytes = len(data)
            if self._is_full(write.segment, position, next_offset, size_bytes, settings, now_ms):
                if len(write.buffers) > JOINED_MIN:
                    _join(write)
                write, position = self._next_write(steps, write, next_offset, now_ms), 0
            header = record_batch.stamped(data, next_offset, self.leader_epoch, write.buffers)
            write.headers.append(header)
            position += size_bytes
            next_offset += header.last_offset_delta + 1
        if len(write.buffers) > JOINED_MIN:
            _join(write)
        steps += [write] if write.buffers else []
        return steps

    def plan_follower_append(self, runs: Sequence[Run], settings: TopicSettings, now_ms: int) -> list[Write | Roll]:
        """Plan batches that another replica has stamped: they stay byte for byte, and must join the log end.

        Raises UnexpectedOffset, with nothing changed.
        """
        steps: list[Write | Roll] = []
        write, next_offset = Write(self.active, self.active.size_bytes, now_ms), self.log_end
        position = write.position
        for run in runs:
            last = _joined(run.headers, next_offset)
            size_bytes = sum(header.size_bytes for header in run.headers)
            is_roll = run.starts_segment and position > 0
            filled = max(position, 1)  # the first batch of a segment always fits; a run may not
            if is_roll or self._is_full(write.segment, filled, last.base_offset, size_bytes, settings, now_ms):
                write = self._plan_over_segments(steps, write, position, run, settings, now_ms)
            else:
                write.buffers.append(run.data[run.start : run.start + size_bytes])
                write.headers += run.headers
            position = write.position + sum(map(len, write.buffers))
            next_offset = last.next_offset
        steps += [write] if write.buffers else []
        return steps

    def _plan_over_segments(
        self, steps: list[Write | Roll], write: Write, position: int, run: Run, settings: TopicSettings, now_ms: int
    ) -> Write:
        """Plan a run that does not fit into the active segment as a whole; returns the last write."""
        start = end = run.start  # of the part that the present write does not have yet
        for header in run.headers:
            offset, size_bytes = header.base_offset, header.size_bytes
            is_roll = run.starts_segment and end == run.start and position > 0
            if is_roll or self._is_full(write.segment, position, offset, size_bytes, settings, now_ms):
                write.buffers += [run.data[start:end]] if end > start else []
                write, start, position = self._next_write(steps, write, offset, now_ms), end, 0
            write.headers.append(header)
            end += size_bytes
            position += size_bytes
        write.buffers.append(run.data[start:end])
        return write

    def _next_write(self, steps: list[Write | Roll], write: Write, next_offset: int, now_ms: int) -> Write:
        """Continue the plan in a new segment."""
        segment = Segment(self.disk, self.directory, next_offset)
        segment.created_ms = now_ms
        steps += [write] if write.buffers else []
        steps.append(Roll(segment))
        return Write(segment, 0, now_ms)

    def _is_full(
        self, segment: Segment, position: int, next_offset: int, incoming: int, settings: TopicSettings, now_ms: int
    ) -> bool:
        """Kafka's shouldRoll: by size, by the reach of relative offsets, by age. An empty segment is never full."""
        if position == 0:
            return False
        is_too_old = segment.created_ms is not None and now_ms - segment.created_ms >= settings.segment_ms
        return (
            position + incoming > settings.segment_bytes
            or next_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or is_too_old
        )

    def is_due_to_roll(self, settings: TopicSettings, now_ms: int) -> bool:
        """True if the active segment has data and has reached its age, so that slow topics are sealed too."""
        return self._is_full(self.active, self.active.size_bytes, self.log_end, 0, settings, now_ms)

    def plan_roll(self, now_ms: int) -> list[Write | Roll]:
        """Plan to seal the active segment, unless it is empty."""
        if self.active.size_bytes == 0:
            return []
        segment = Segment(self.disk, self.directory, self.log_end)
        segment.created_ms = now_ms
        return [Roll(segment)]

    def apply(self, steps: list[Write | Roll]) -> None:
        """Records that a plan has been carried out completely."""
        for step in steps:
            if isinstance(step, Roll):
                assert step.segment.base_offset == self.log_end
                self.segments.append(step.segment)
                continue
            assert step.segment is self.active
            assert step.position == self.active.size_bytes
            if self.active.created_ms is None:
                self.active.created_ms = step.now_ms
            self._recent[self.log_end] = self.end_position
            if len(self._recent) > RECENT_MAX:
                del self._recent[next(iter(self._recent))]
            self.active.add_batches(step.headers, step.buffers, step.now_ms)
            if self.batch_cache is not None:
                self.batch_cache.put(step.headers, step.buffers, is_segment_start=step.position == 0)

    def copy(self) -> Log:
        """Copy the log, to be truncated in a thread while this one is read. Shares the segments."""
        return Log(
            self.disk,
            self.directory,
            list(self.segments),
            log_start=self.log_start,
            leader_epoch=self.leader_epoch,
            epochs=self.epochs,
        )

    def replace_with(self, other: Log) -> None:
        """Replaces this log's state by that of a changed copy."""
        self.segments, self.log_start, self.epochs = other.segments, other.log_start, other.epochs
        self.forget_recent()

    def forget_recent(self) -> None:
        """Forgets recent writes, after a truncation or a compaction."""
        self._recent.clear()
        if self.batch_cache is not None:
            self.batch_cache.clear()

    def bytes_from(self, offset: int) -> int:
        """Estimates the local bytes at or above an offset. Reads nothing: in a segment whose index is not loaded, all
        records count as equally large.
        """
        if offset <= self.segments[0].base_offset:
            return self.size_bytes
        if offset >= self.log_end:
            return 0
        number = bisect_right(self.segments, offset, key=_base_offset) - 1
        first, later = self.segments[number], self.segments[number + 1 :]
        return first.size_bytes - first.bytes_below(offset) + sum(segment.size_bytes for segment in later)

    def has_segment_at(self, offset: int) -> bool:
        """True if a segment begins there, so that a follower may begin one too."""
        return self.segment_of(offset).base_offset == offset

    def segment_of(self, offset: int) -> Segment:
        """Returns the local segment that holds an offset, or will hold it next."""
        assert self.segments[0].base_offset <= offset <= self.log_end
        return self.segments[bisect_right(self.segments, offset, key=_base_offset) - 1]

    def locate(self, offset: int, max_bytes: int, limit: int, limit_position: BytePosition) -> ReadSpan | None:
        """Returns where to read for an offset: whole batches up to about `max_bytes`, at least one; None at the limit.

        `limit` is the first offset that may not be read (the high watermark) and `limit_position` its place. The span
        ends at an indexed batch start, at the limit or at the end of the segment: in each case the offset that follows
        is known without reading a header.
        """
        if offset >= limit:
            return None
        segment = self.segment_of(offset)
        is_last = segment.base_offset == limit_position.base_offset
        readable = limit_position.position if is_last else segment.size_bytes
        readable_end = limit if is_last else segment.next_offset
        if segment.damage:
            check_undamaged(segment.damage, offset, segment.path)
        index = segment.loaded_index or segment.index
        recent = self._recent.get(offset)
        if recent is not None and recent.base_offset == segment.base_offset and not segment.damage:
            start, start_offset = recent.position, offset
        else:
            start, start_offset = index.entry_at_or_before(offset)
        if segment.damage:
            start, start_offset = start_after(segment.damage, offset, start, start_offset)
        end, next_offset = readable, readable_end
        if start + max_bytes < readable:
            indexed = index.boundary_at_or_before(start + max_bytes)
            if indexed <= start:
                indexed = index.boundary_after(start) or readable
            if indexed < readable:
                end, next_offset = indexed, index.offset_at(indexed)
        if segment.damage:
            end, next_offset = end_before(segment.damage, offset, end, next_offset)
        return ReadSpan(segment, index, start, end, next_offset, start_offset)

    def insert_missing(self, before: Segment, base_offset: int) -> Segment:
        """Insert a segment whose file is missing, known by the gap behind the one before; it ends at `base_offset`."""
        assert before.base_offset < base_offset < before.next_offset
        missing = Segment(self.disk, self.directory, base_offset, next_offset=before.next_offset)
        missing.last_append_ms = before.last_append_ms
        before.next_offset = base_offset
        self.segments.insert(self.segments.index(before) + 1, missing)
        return missing

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Replaces neighbouring sealed segments by one with the same offsets."""
        at = self.segments.index(old[0])
        assert self.segments[at : at + len(old)] == list(old)
        assert new.next_offset == old[-1].next_offset
        self.segments[at : at + len(old)] = [new]
        self.forget_recent()

    def has_segments_below(self, offset: int) -> bool:
        """True if `drop_oldest` would find any."""
        return len(self.segments) > 1 and self.segments[0].next_offset <= offset

    def kept_from(self, below: int) -> int:
        """Returns the local log start after `drop_oldest`."""
        return next(s.base_offset for s in self.segments if s.next_offset > below or s is self.active)

    def drop_oldest(self, below: int) -> list[Segment]:
        """Removes sealed segments that end at or below an offset from the log; the caller removes their files."""
        keep = next(i for i, s in enumerate(self.segments) if s.next_offset > below or s is self.active)
        dropped, self.segments = self.segments[:keep], self.segments[keep:]
        return dropped


def _join(write: Write) -> None:
    """Makes one buffer of small ones: a copy of some kilobytes costs less than a call or two for each of them."""
    if write.size_bytes <= JOINED_BYTES_MAX:
        write.buffers = [b"".join(write.buffers)]


def _joined(headers: Sequence[Header], log_end: int) -> Header:
    """Returns the last header, if the batches are contiguous and the first begins at the log end."""
    expected = log_end
    for header in headers:
        if header.base_offset != expected:
            text = f"a copied batch begins at offset {header.base_offset}, where {expected} is next"
            raise UnexpectedOffset(text)
        expected = header.next_offset
    return headers[-1]


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def available_bytes(log: Log, offset: int, limit: int, limit_position: BytePosition) -> int:
    """Estimates the committed bytes at or after an offset, to compare with `min_bytes`. Reads nothing."""
    if offset >= limit:
        return 0
    total = limit_position.position
    for segment in reversed(log.segments):
        if segment.next_offset <= offset:
            break
        if segment.base_offset < limit_position.base_offset:
            total += segment.size_bytes
    return max(1, total - log.segment_of(offset).bytes_below(offset))
