"""Searches behind bad bytes for a valid batch. If there is one, they are a hole; else the torn end of the last write.

Does not decide what to do. A record's value may look like a batch, or be one, so the bytes of a batch with a complete
header are not searched; only behind an invalid header every byte is tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.format.batch import HEADER_BYTES, MAGIC, Header, has_valid_crc, read_header
from engine.log.segment import Segment, can_follow

_WINDOW_BYTES = 8 * 1024 * 1024
_CHECKED_BYTES_MAX = 1 << 30  # bytes that imitate headers must not cost more than a scan of the largest segment


def find_batch_after(segment: Segment, position: int, expected_offset: int, later: list[Segment]) -> str | None:
    """Describes the first valid batch behind the bad bytes at a position; None without one.

    Cases: (1) the bad batch's header is complete, so the next batch would begin where it ends; (2) it is not, so any
    byte may be a beginning; (3) the first batch of a later segment.
    """
    left = segment.size_bytes - position
    if left >= HEADER_BYTES:
        header = read_header(segment.pread(HEADER_BYTES, position))
        if header.magic == MAGIC and header.base_offset == expected_offset and header.size_bytes >= HEADER_BYTES:
            search_from = position + header.size_bytes
        else:
            search_from = position + 1
        batch_at = _search(segment, search_from, expected_offset)
        if batch_at is not None:
            return f"a batch at byte {batch_at}"
    for other in later:
        if _is_batch(other, 0, other.base_offset):
            return f"the first batch of {other.path}"
    return None


def other_batch_at(segment: Segment, position: int, expected_offset: int) -> int | None:
    """Returns the base offset of a valid batch at a position, unless it is the expected one; else None.

    The checksum does not cover the offset.
    """
    left = segment.size_bytes - position
    if left < HEADER_BYTES:
        return None
    base_offset = read_header(segment.pread(HEADER_BYTES, position)).base_offset
    return base_offset if base_offset != expected_offset and _is_batch(segment, position, base_offset) else None


def batch_starts(data: bytes, expected_offset: int) -> Iterator[tuple[int, Header]]:
    """Yields positions and headers where a batch at or behind an offset may begin. Most of these are false.

    Compares the upper half of the offset, which hardly changes in a segment, and the magic byte.
    """
    high = expected_offset >> 32
    starts = b"|".join(re.escape(half.to_bytes(4, "big")) for half in (high, high + 1))
    pattern = re.compile(rb"(?=(?:" + starts + rb").{12}" + re.escape(bytes([MAGIC])) + rb")", re.DOTALL)
    for match in pattern.finditer(data):
        if match.start() + HEADER_BYTES > len(data):
            return
        yield match.start(), read_header(data, match.start())


def _search(segment: Segment, position: int, expected_offset: int) -> int | None:
    checked_bytes = 0
    while position + HEADER_BYTES <= segment.size_bytes and checked_bytes < _CHECKED_BYTES_MAX:
        window = segment.pread(_WINDOW_BYTES + HEADER_BYTES, position)
        for start, header in batch_starts(window, expected_offset):
            if start >= _WINDOW_BYTES:
                break
            if header.base_offset > expected_offset and 0 <= header.record_count <= header.last_offset_delta + 1:
                checked_bytes += max(0, header.size_bytes)
                if _is_batch(segment, position + start, header.base_offset):
                    return position + start
            if checked_bytes >= _CHECKED_BYTES_MAX:
                break
        position += _WINDOW_BYTES
    return None


def _is_batch(segment: Segment, position: int, expected_offset: int) -> bool:
    left = segment.size_bytes - position
    if left < HEADER_BYTES:
        return False
    header = read_header(segment.pread(HEADER_BYTES, position))
    if not can_follow(header, expected_offset, left):
        return False
    return has_valid_crc(segment.pread(header.size_bytes, position), 0, header)
