"""Whether the batches of a span that was read are sound: whole, one after another, true to their checksums.

The middle of a long span, from one entry of the index to another, is compared at once with what is known of it
(engine/format/span_checksums.py). What is left at both ends is less than the distance of two entries, and is checked
batch by batch; so is all of a short span, of one about which nothing is known, and of one that differs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from crc32c import crc32c

from engine.format.batch_header import Buffer, Sound, sound_batches
from engine.format.index import INDEX_INTERVAL_BYTES
from engine.log.log import ReadSpan

_SPAN_BYTES_MIN = INDEX_INTERVAL_BYTES  # a shorter one is not worth the search


def sound_span(span: ReadSpan, offset: int, data: Buffer, batches_max: int) -> Sound:
    """As sound_batches says it of the bytes of a span; `batches_max` bounds those that are checked one by one."""
    if len(data) < _SPAN_BYTES_MIN:
        return sound_batches(data, span.start_offset, offset, batches_max)
    sound = _at_once(span, offset, data)
    if sound is None:
        sound = sound_batches(data, span.start_offset, offset, batches_max)
        if not sound.is_bounded:
            _learn(span, data, sound)
    return sound


def _at_once(span: ReadSpan, offset: int, data: Buffer) -> Sound | None:
    """None where the batches must be looked at one by one. At the ends are few: nothing has to bound them."""
    index, start, size_bytes = span.segment_index, span.start, len(data)
    positions, offsets, base_offset = index.positions, index.relative_offsets, index.base_offset
    first, last = bisect_left(offsets, offset - base_offset), bisect_right(positions, start + size_bytes) - 1
    values = index.checksums.known(first, last) if first < last else None
    if values is None:
        return None
    head, tail = positions[first] - start, positions[last] - start  # between them is what is compared
    if head < 0:
        return None
    middle = data if tail - head == size_bytes else memoryview(data)[head:tail]
    if crc32c(middle, values[0]) != values[1]:
        return None
    begin, begin_offset = 0, span.start_offset
    if head:
        begin, end, begin_offset, _ = sound_batches(memoryview(data)[:head], begin_offset, offset, head)
        if end != head:
            return None
    if begin_offset != base_offset + offsets[first]:
        return None
    if tail == size_bytes:
        return Sound(begin, tail, base_offset + offsets[last])
    tail_offset = base_offset + offsets[last]
    behind = sound_batches(memoryview(data)[tail:], tail_offset, tail_offset, size_bytes)
    return Sound(begin, tail + behind.end, behind.next_offset)


def _learn(span: ReadSpan, data: Buffer, sound: Sound) -> None:
    """Remember what was found sound batch by batch, so that the next read of it is quick."""
    index, start, end = span.segment_index, span.start, span.start + sound.end
    first, last = bisect_left(index.positions, start + sound.begin), bisect_right(index.positions, end) - 1
    if first <= last and index.positions[last] == end and index.offset_of(last) != sound.next_offset:
        return  # the index, which is not evidence, does not fit
    if first < last and index.checksums.known(first, last) is None:
        offsets = [index.offset_of(number) for number in range(first, last + 1)]
        index.checksums.learn(data, start, index.positions, offsets, first)
