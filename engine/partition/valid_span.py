"""Checks the batches of a span of a segment that was read: by kept checksums at once, else one by one.

Invariant: what it returns as valid has had every CRC compared, from the batch that holds the offset on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from crc32c import crc32c

from engine.format.batch import Buffer
from engine.format.batch_header import ValidRun, valid_batches
from engine.format.index import INDEX_INTERVAL_BYTES
from engine.log.log import ReadSpan

_SPAN_BYTES_MIN = INDEX_INTERVAL_BYTES  # a shorter one is not worth the search


class SpanCheck(NamedTuple):
    """How the bytes of a span are checked at once: by a checksum from `head` to `tail`, the few others by batches.

    Positions count from the start of the span. Its first batch has `start_offset`, the one at `head` has `head_offset`.
    """

    head: int
    tail: int
    seed: int
    checksum: int
    start_offset: int
    head_offset: int
    tail_offset: int


def valid_span(span: ReadSpan, offset: int, data: Buffer, batches_max: int) -> ValidRun:
    """Checks the bytes of a span as `valid_batches` does; `batches_max` bounds the batches checked one by one."""
    size_bytes = len(data)
    if size_bytes < _SPAN_BYTES_MIN:
        return valid_batches(data, span.start_offset, offset, batches_max)
    check = span_check(span, offset, size_bytes)
    sound = None if check is None else valid_at_once(check, offset, data)
    if sound is None:
        sound = valid_batches(data, span.start_offset, offset, batches_max)
        if not sound.is_bounded:
            _cache_checksums(span, data, sound)
    return sound


def span_check(span: ReadSpan, offset: int, size_bytes: int) -> SpanCheck | None:
    """Returns None if the batches must be checked one by one."""
    index, start = span.segment_index, span.start
    positions, offsets, base_offset = index.positions, index.relative_offsets, index.base_offset
    first, last = bisect_left(offsets, offset - base_offset), bisect_right(positions, start + size_bytes) - 1
    values = index.checksums.lookup(first, last) if first < last else None
    if values is None:
        return None
    head, tail = positions[first] - start, positions[last] - start
    if head < 0:
        return None
    return SpanCheck(head, tail, *values, span.start_offset, base_offset + offsets[first], base_offset + offsets[last])


def valid_at_once(check: SpanCheck, offset: int, data: Buffer) -> ValidRun | None:
    """Returns None if the batches must be checked one by one. The few outside of indexed spans need no bound."""
    head, tail, size_bytes = check.head, check.tail, len(data)
    middle = data if tail - head == size_bytes else memoryview(data)[head:tail]
    if crc32c(middle, check.seed) != check.checksum:
        return None
    begin, begin_offset = 0, check.start_offset
    if head:
        begin, end, begin_offset, _ = valid_batches(memoryview(data)[:head], begin_offset, offset, head)
        if end != head:
            return None
    if begin_offset != check.head_offset:
        return None
    if tail == size_bytes:
        return ValidRun(begin, tail, check.tail_offset)
    behind = valid_batches(memoryview(data)[tail:], check.tail_offset, check.tail_offset, size_bytes)
    return ValidRun(begin, tail + behind.end, behind.next_offset)


def _cache_checksums(span: ReadSpan, data: Buffer, sound: ValidRun) -> None:
    """Remembers the batches that were validated one by one, so that the next read of them is quick."""
    index, start, end = span.segment_index, span.start, span.start + sound.end
    first, last = bisect_left(index.positions, start + sound.begin), bisect_right(index.positions, end) - 1
    if first <= last and index.positions[last] == end and index.offset_of(last) != sound.next_offset:
        return  # the index, which is not evidence, does not fit
    if first < last and index.checksums.lookup(first, last) is None:
        offsets = [index.offset_of(number) for number in range(first, last + 1)]
        index.checksums.add_read(data, start, index.positions, offsets, first)
