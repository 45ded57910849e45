"""Where batches end that are written and not committed yet, so that the high watermark always has an exact place.

Of a partition that is alone the watermark moves from the end of one group of writes to the end of a later one, and only
those ends are kept. Followers' ends lie anywhere between batches: where a partition `is_replicated` what each group
wrote is kept too, until it is committed, and looked into when a watermark falls inside. What was written in an earlier
life, or so long ago that it had to be forgotten, stands in no memory: `place_below` asks the index and the headers
behind it.
Invariants: every place is the start of a batch, or the end of the log; what is kept has a bound, however long nothing
is committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.errors import Corrupt
from engine.format.batch import HEADER_BYTES, Buffer, Header, read_header
from engine.format.index import INDEX_INTERVAL_BYTES
from engine.log.log import BytePosition, Log, Roll, Write
from engine.log.segment import Segment, can_follow

BATCHES_MAX = 10_000  # about 4 MB of headers; far more than lie between two fetches of a follower that keeps up

Read = Callable[[Segment, int, int], Buffer]  # length, position: Segment.pread or Segment.pread_nowait


class _Group(NamedTuple):
    end: int
    place: BytePosition
    steps: Sequence[Write | Roll]
    batches: int


class BatchBoundaries:
    """See the head of the file."""

    def __init__(self) -> None:
        self._groups: deque[_Group] = deque()
        self._batches = 0  # a group counts as one at least

    def __repr__(self) -> str:
        return f"BatchBoundaries({len(self._groups)} groups)"

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, end: int, place: BytePosition, steps: Sequence[Write | Roll] = ()) -> None:
        """A group was written."""
        batches = max(1, sum(len(step.headers) for step in steps if isinstance(step, Write)))
        self._groups.append(_Group(end, place, steps, batches))
        self._batches += batches
        while self._batches > BATCHES_MAX and len(self._groups) > 1:
            self._first()

    def take(self, position: int) -> BytePosition | None:
        """The place of a position, and forget those before it; None where it is not known."""
        groups = self._groups
        while groups and groups[0].end <= position:
            group = self._first()
            if group.end == position:
                return group.place
        return _place_within(groups[0].steps, position) if groups else None

    def cut(self, log_end: int) -> None:
        """The log ends here now."""
        while self._groups and self._groups[-1].end > log_end:
            self._batches -= self._groups.pop().batches

    def _first(self) -> _Group:
        group = self._groups.popleft()
        self._batches -= group.batches
        return group


def _place_within(steps: Sequence[Write | Roll], position: int) -> BytePosition | None:
    for step in steps:
        if isinstance(step, Roll) or not step.headers[0].base_offset <= position <= step.headers[-1].next_offset:
            continue
        place, end = step.position, step.headers[0].base_offset
        for header in step.headers:
            if header.next_offset > position:
                break
            place, end = place + header.size_bytes, header.next_offset
        return BytePosition(step.segment.base_offset, place) if end == position else None
    return None


def place_below(log: Log, offset: int, read: Read) -> tuple[int, BytePosition]:
    """The last place between two batches that is not beyond an offset. Raises what `read` raises, and Corrupt."""
    if offset >= log.log_end:
        return log.log_end, log.end_position
    header, place = _batch_of(log, offset, read)
    return header.base_offset, place


def place_above(log: Log, offset: int, read: Read) -> tuple[int, BytePosition]:
    """The first one that is not before it."""
    if offset >= log.log_end:
        return log.log_end, log.end_position
    header, place = _batch_of(log, offset, read)
    if header.base_offset == offset:
        return offset, place
    return header.next_offset, BytePosition(place.base_offset, place.position + header.size_bytes)


def _batch_of(log: Log, offset: int, read: Read) -> tuple[Header, BytePosition]:
    segment = log.segment_of(offset)
    position = segment.index.position_at_or_before(offset)
    expected = segment.index.offset_at(position) if position else segment.base_offset
    header, position = _walked(segment, position, expected, offset, read)
    return header, BytePosition(segment.base_offset, position)


def _walked(segment: Segment, position: int, expected: int, offset: int, read: Read) -> tuple[Header, int]:
    window, window_at = b"", position
    while position < segment.size_bytes:
        if position + HEADER_BYTES > window_at + len(window):
            length = min(INDEX_INTERVAL_BYTES, segment.size_bytes - position)
            window, window_at = bytes(read(segment, length, position)), position
        if len(window) < position - window_at + HEADER_BYTES:
            break
        header = read_header(window, position - window_at)
        if not can_follow(header, expected, segment.size_bytes - position):
            break
        if header.next_offset > offset:
            return header, position
        position, expected = position + header.size_bytes, header.next_offset
    raise Corrupt(f"{segment.path}: no batch of offset {offset} is found from byte {position} on")
