"""Checks the batches of a span of a segment that was read: by kept checksums at once, else one by one.

Invariant: what it returns as valid has had every CRC compared, from the batch that holds the offset on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from crc32c import crc32c

from engine.format.batch import Buffer
from engine.format.batch_header import ValidRun, valid_batches
from engine.format.index import INDEX_INTERVAL_BYTES
from engine.log.log import ReadSpan

_SPAN_BYTES_MIN = INDEX_INTERVAL_BYTES  # a shorter one is not worth the search


def valid_span(span: ReadSpan, offset: int, data: Buffer, batches_max: int) -> ValidRun:
    """Check the bytes of a span as `valid_batches` does; `batches_max` bounds the batches checked one by one."""
    if len(data) < _SPAN_BYTES_MIN:
        return valid_batches(data, span.start_offset, offset, batches_max)
    sound = _at_once(span, offset, data)
    if sound is None:
        sound = valid_batches(data, span.start_offset, offset, batches_max)
        if not sound.is_bounded:
            _cache_checksums(span, data, sound)
    return sound


def _at_once(span: ReadSpan, offset: int, data: Buffer) -> ValidRun | None:
    """Returns None if the batches must be checked one by one. The few outside of indexed spans need no bound."""
    index, start, size_bytes = span.segment_index, span.start, len(data)
    positions, offsets, base_offset = index.positions, index.relative_offsets, index.base_offset
    first, last = bisect_left(offsets, offset - base_offset), bisect_right(positions, start + size_bytes) - 1
    values = index.checksums.lookup(first, last) if first < last else None
    if values is None:
        return None
    head, tail = positions[first] - start, positions[last] - start  # the bytes between them are compared
    if head < 0:
        return None
    middle = data if tail - head == size_bytes else memoryview(data)[head:tail]
    if crc32c(middle, values[0]) != values[1]:
        return None
    begin, begin_offset = 0, span.start_offset
    if head:
        begin, end, begin_offset, _ = valid_batches(memoryview(data)[:head], begin_offset, offset, head)
        if end != head:
            return None
    if begin_offset != base_offset + offsets[first]:
        return None
    if tail == size_bytes:
        return ValidRun(begin, tail, base_offset + offsets[last])
    tail_offset = base_offset + offsets[last]
    behind = valid_batches(memoryview(data)[tail:], tail_offset, tail_offset, size_bytes)
    return ValidRun(begin, tail + behind.end, behind.next_offset)


def _cache_checksums(span: ReadSpan, data: Buffer, sound: ValidRun) -> None:
    """Remember the batches that were validated one by one, so that the next read of them is quick."""
    index, start, end = span.segment_index, span.start, span.start + sound.end
    first, last = bisect_left(index.positions, start + sound.begin), bisect_right(index.positions, end) - 1
    if first <= last and index.positions[last] == end and index.offset_of(last) != sound.next_offset:
        return  # the index, which is not evidence, does not fit
    if first < last and index.checksums.lookup(first, last) is None:
        offsets = [index.offset_of(number) for number in range(first, last + 1)]
        index.checksums.add_read(data, start, index.positions, offsets, first)
