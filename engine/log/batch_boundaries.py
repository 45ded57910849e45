"""Finds batch boundaries of a log on the disk by a segment's index and the headers behind its entry.

engine/partition/high_watermark.py keeps the boundaries of recent writes in memory.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import Corrupt
from engine.format.batch import HEADER_BYTES, Buffer, Header, read_header
from engine.format.index import INDEX_INTERVAL_BYTES
from engine.log.log import BytePosition, Log
from engine.log.segment import Segment, can_follow

Read = Callable[[Segment, int, int], Buffer]  # length, position: Segment.pread or Segment.pread_nowait


def boundary_below(log: Log, offset: int, read: Read) -> tuple[int, BytePosition]:
    """Returns the last batch boundary at or below an offset. Raises the errors of `read`, and Corrupt."""
    if offset >= log.log_end:
        return log.log_end, log.end_position
    header, position = _batch_of(log, offset, read)
    return header.base_offset, position


def boundary_above(log: Log, offset: int, read: Read) -> tuple[int, BytePosition]:
    """Returns the first batch boundary at or above an offset. Raises as `boundary_below`."""
    if offset >= log.log_end:
        return log.log_end, log.end_position
    header, position = _batch_of(log, offset, read)
    if header.base_offset == offset:
        return offset, position
    return header.next_offset, BytePosition(position.base_offset, position.position + header.size_bytes)


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
