"""Reads for share groups at a partition's owner: its bounds, single ranges of its records, and their keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import orjson
from msgspec import Struct
from xxhash import xxh3_64_intdigest

from engine.format import batch as record_batch
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from gateway.connections.read_budget import RENDERED_COPIES
from gateway.fetch.context import ReadContext
from gateway.fetch.reader import count_bytes, read_chunk
from gateway.fetch.record_json import Bounds, Read, Style
from gateway.fetch.rendering import render_records
from gateway.routing.router import Answering, PartitionCall

KEYS_BYTES = 1024 * 1024  # of records at once, to read their keys

Range = tuple[int, int, int]  # first, last, deliveries


class RangesRead(Struct, frozen=True, array_like=True):
    """Ranges of records, each with the number of its delivery, and the form of the values."""

    ranges: list[Range]
    max_bytes: int
    value: str | None


class RangesFound(NamedTuple):
    """Which offsets have no record, and which were not read, as (first, last); and the number of records."""

    absent: list[tuple[int, int]]
    unread: list[tuple[int, int]]
    record_count: int


class KeysRead(Struct, frozen=True, array_like=True):
    """The offsets whose keys, or whose stored records, are read."""

    first: int
    end: int


class KeysFound(NamedTuple):
    """The records below `end`: their offsets, and a hash of each key; 0: no key."""

    end: int
    offsets: list[int]
    hashes: list[int]


SHARE_BOUNDS: PartitionCall[None, tuple[int, int]] = PartitionCall("share_bounds", None)
SHARE_READ: PartitionCall[RangesRead, RangesFound] = PartitionCall("share_read", RangesRead)
SHARE_KEYS: PartitionCall[KeysRead, KeysFound] = PartitionCall("share_keys", KeysRead)
SHARE_STORED: PartitionCall[KeysRead, int] = PartitionCall("share_stored", KeysRead)


def share_read_calls(context: ReadContext) -> list[Answering]:
    """Returns the calls to partitions of this process."""
    return [
        SHARE_BOUNDS.by(partial(read_bounds, context)),
        SHARE_READ.by(partial(read_ranges, context)),
        SHARE_KEYS.by(partial(read_keys, context)),
        SHARE_STORED.by(partial(read_stored, context)),
    ]


async def read_bounds(context: ReadContext, partition: Partition, _: None) -> tuple[tuple[int, int], bytes]:
    """Returns the log start and the high watermark. Raises EngineError."""
    if partition.offline is not None:
        raise partition.offline
    context.partitions.replica(partition).check_latest()
    return (partition.log.log_start, partition.high_watermark), b""


async def read_ranges(context: ReadContext, partition: Partition, call: RangesRead) -> tuple[RangesFound, bytes]:
    """Returns the records of ranges, as JSON objects with commas between. Reads at least one batch. Raises EngineError.

    The ranges ascend and do not overlap.
    """
    if partition.offline is not None:
        raise partition.offline
    answer = RangesFound([], [], 0)
    texts: list[bytes] = []
    record_count, left_bytes = 0, call.max_bytes
    rest = list(call.ranges)
    async with context.local_budget.hold(call.max_bytes * RENDERED_COPIES):
        while rest:
            first, last, _ = rest[0]
            if first < partition.log.log_start:
                answer.absent.append((first, min(last, partition.log.log_start - 1)))
                rest = _from(rest, partition.log.log_start)
                continue
            is_readable = left_bytes > 0 and first < partition.high_watermark
            chunk = await read_chunk(context, partition, first, left_bytes) if is_readable else None
            if chunk is None:
                break
            left_bytes -= len(chunk.data)
            count_bytes(context, partition, len(chunk.data))
            taken = [(begin, min(end, chunk.next_offset - 1), n) for begin, end, n in rest if begin < chunk.next_offset]
            render = partial(_render, partition, chunk, taken, call.value, context.settings.fetch_bytes_max)
            rendered = await context.offload.by_size(len(chunk.data), render)
            texts += rendered.texts
            record_count += rendered.record_count
            answer.absent.extend(rendered.absent)
            rest = _from(rest, rendered.next_offset)
    answer.unread.extend((first, last) for first, last, _ in rest)
    return answer._replace(record_count=record_count), b",".join(texts)


async def read_keys(context: ReadContext, partition: Partition, call: KeysRead) -> tuple[KeysFound, bytes]:
    """Returns the keys of records, at least of one batch. Raises EngineError."""
    if call.first < partition.log.log_start:
        return KeysFound(min(call.end, partition.log.log_start), [], []), b""
    async with context.local_budget.hold(KEYS_BYTES * RENDERED_COPIES):
        chunk = await read_chunk(context, partition, call.first, KEYS_BYTES)
        if chunk is None:
            return KeysFound(call.first, [], []), b""
        return await context.offload.by_size(len(chunk.data), partial(_keys, chunk, call)), b""


async def read_stored(context: ReadContext, partition: Partition, call: KeysRead) -> tuple[int, bytes | bytearray]:
    """Returns stored batches, at least one, and the offset that follows them. Raises EngineError.

    Without batches there is no such record: a leader that is new, or replaced, may know too low a high watermark.
    """
    if partition.offline is not None:
        raise partition.offline
    first = max(call.first, partition.log.log_start)
    if partition.high_watermark <= first < call.end:
        leader = context.partitions.replica(partition)
        leader.check_latest()
        await leader.confirm_leading()
    async with context.local_budget.hold(KEYS_BYTES):
        chunk = await read_chunk(context, partition, first, KEYS_BYTES) if first < call.end else None
    return (first, b"") if chunk is None else (chunk.next_offset, chunk.data)


class _Texts(NamedTuple):
    texts: list[bytes]
    record_count: int
    absent: list[tuple[int, int]]
    next_offset: int


def _render(partition: Partition, chunk: Chunk, taken: Sequence[Range], value: str | None, bytes_max: int) -> _Texts:
    """Returns the records of ranges within a chunk."""
    begin = orjson.dumps({"topic": partition.topic, "partition": partition.number})[:-1]
    batch_bytes_max = partition.settings.batch_decoded_bytes_max
    if len(taken) == 1:
        first, last, deliveries = taken[0]
        count = last - first + 1
        bounds = Bounds(count, batch_bytes_max, bytes_max)
        rendered = render_records(Read(first, chunk), bounds, value, Style.LINES)
        if rendered.record_count == count and rendered.next_offset == last + 1 and not rendered.has_gap:
            return _Texts([_as_list(rendered.text, begin, deliveries)], count, [], last + 1)
    rendered = render_records(Read(taken[0][0], chunk), Bounds(None, batch_bytes_max, bytes_max), value, Style.LINES)
    lines = [(orjson.loads(line), line) for line in rendered.text.splitlines()]
    by_offset = {
        document["offset"]: (document.get("last_offset", document["offset"]), line) for document, line in lines
    }
    texts: list[bytes] = []
    absent: list[tuple[int, int]] = []
    for first, last, deliveries in taken:
        offset = first
        while offset <= min(last, rendered.next_offset - 1):
            end, line = by_offset.get(offset, (offset, b""))
            if line:
                texts.append(_as_list(line + b"\n", begin, deliveries))
            else:
                absent.append((offset, offset))
            offset = end + 1
    return _Texts(texts, len(texts), absent, rendered.next_offset)


def _as_list(lines: bytes, begin: bytes, deliveries: int) -> bytes:
    """Returns NDJSON as objects with commas between, each with more members in front. No line has a line end inside."""
    more = begin + b',"delivery_count":%d,' % deliveries
    return more + lines[1:-1].replace(b"}\n{", b"}," + more)


def _keys(chunk: Chunk, call: KeysRead) -> KeysFound:
    offsets: list[int] = []
    hashes: list[int] = []
    for record in record_batch.decode(chunk.data):
        if call.first <= record.offset < call.end:
            offsets.append(record.offset)
            hashes.append(0 if record.key is None else xxh3_64_intdigest(record.key) or 1)
    return KeysFound(min(call.end, chunk.next_offset), offsets, hashes)


def _from(ranges: Sequence[Range], offset: int) -> list[Range]:
    """Returns the parts of ranges from an offset on."""
    return [(max(first, offset), last, deliveries) for first, last, deliveries in ranges if last >= offset]
