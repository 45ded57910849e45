"""Fetch: from a position to an answer, at once or, as a long poll, when there is something.

Reads whole stored batches; what is below the local log comes from the store. Only the JSON forms look into records.
A fetch returns at least one record if there is one, whatever its size: no consumer is ever stuck before a large one.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from aiohttp import web

from engine import batch as record_batch
from engine.batch import Record
from engine.errors import InvalidBatch
from engine.partition import Partition
from engine.reader import Chunk, available_bytes
from gateway import record_json
from gateway.json_records import rfc3339_ms
from gateway.node import NODE, Node
from gateway.problems import Problem
from gateway.query import Number, Rules, Text, Word, path_partition, read_query
from gateway.record_json import Out, Undecodable

JSON = "application/json"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")

QUERY: Rules = {
    "offset": Number(None, 0, 2**63 - 1),
    "from": Word(None, ("earliest", "latest")),
    "timestamp": Text(None, 64),
    "max_bytes": Number(None, 1, 2**31 - 1),
    "max_records": Number(None, 1, 10_000_000),
    "min_bytes": Number(1, 0, 2**31 - 1),
    "wait_ms": Number(0, 0, 60_000),
    "value": Word(None, ("json", "text", "base64")),
    "ndjson": Word("records", ("values", "records")),
}


async def fetch(request: web.Request) -> web.Response:
    """GET /v1/topics/{topic}/partitions/{partition}/records"""
    node = request.app[NODE]
    query = read_query(request, QUERY)
    media_type = choose_media_type(request.headers.get("Accept", ""))
    partition = node.shard.partition(request.match_info["topic"], path_partition(request))
    if partition.offline is not None:
        raise partition.offline
    offset = await _start_offset(node, partition, query)
    partition.check_readable(offset)
    max_bytes = min(query["max_bytes"] or node.settings.fetch_bytes_default, node.settings.fetch_bytes_max)
    if offset + 1 > partition.high_watermark or query["min_bytes"] > 1:
        await _wait(node, partition, offset, min(query["min_bytes"], max_bytes), query["wait_ms"])
    chunk = await read_chunk(node, partition, offset, max_bytes)
    return await _answer(node, partition, offset, chunk, query, media_type)


def choose_media_type(accept: str) -> str:
    """The form of the answer: the first accepted type that can be given. Raises Problem not_acceptable."""
    for media_type in _by_preference(accept) if accept else ["*/*"]:
        if media_type in (record_batch.MEDIA_TYPE, NDJSON, JSON):
            return media_type
        if media_type == SSE:
            raise Problem("not_implemented", "text/event-stream is not built yet; poll with wait_ms instead")
        if media_type in ("*/*", "application/*", ""):
            return JSON
    known = f"{JSON}, {NDJSON}, {record_batch.MEDIA_TYPE}"
    raise Problem("not_acceptable", f"Accept is {accept!r}; this can be given: {known}")


def _by_preference(accept: str) -> list[str]:
    """The media types of an Accept header, the best first. What has quality 0 is not accepted at all."""
    weighed: list[tuple[float, str]] = []
    for part in accept.split(","):
        media_type, *parameters = part.lower().replace(" ", "").replace("\t", "").split(";")
        given = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        quality = float(given) if _QUALITY.fullmatch(given) else 1.0
        if quality > 0:
            weighed.append((quality, media_type))
    return [media_type for _, media_type in sorted(weighed, key=lambda pair: -pair[0])]


async def read_chunk(node: Node, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
    """Whole batches from the local log, or from the store below it."""
    if offset < partition.log.local_log_start:
        return await node.tier.read(partition, offset, max_bytes)
    return await node.shard.reader.read(partition, offset, max_bytes)


def parse_timestamp(text: str) -> int:
    """Milliseconds, or RFC 3339."""
    if text.isascii() and text.isdecimal() and len(text) <= 16 and int(text) < 2**53:
        return int(text)
    moment = rfc3339_ms(text.replace(" ", "+"))  # a bare + in a query means a space
    if moment is None:
        raise Problem("invalid_query", f"timestamp is {text!r}; give milliseconds or RFC 3339", parameter="timestamp")
    return moment


async def find_time(node: Node, partition: Partition, timestamp: int) -> tuple[int, int] | None:
    """The first committed record at or after a time, in the store or here, as (offset, its timestamp)."""
    if partition.log.log_start < partition.log.local_log_start:
        found = await node.tier.first_at_or_after(partition, timestamp)
        if found is not None:
            return found
    return await node.shard.reader.first_at_or_after(partition, timestamp)


async def _start_offset(node: Node, partition: Partition, query: dict[str, Any]) -> int:
    given = [name for name in ("offset", "from", "timestamp") if query[name] is not None]
    if len(given) != 1:
        text = f"one of offset, from and timestamp is needed, {len(given)} are given"
        raise Problem("invalid_query", text, parameter="offset")
    match given[0]:
        case "offset":
            return int(query["offset"])
        case "from":
            return partition.log.log_start if query["from"] == "earliest" else partition.high_watermark
    found = await find_time(node, partition, parse_timestamp(query["timestamp"]))
    return partition.high_watermark if found is None else found[0]


async def _wait(node: Node, partition: Partition, offset: int, min_bytes: int, wait_ms: int) -> None:
    """Until `min_bytes` are committed at the offset, the time is over, or the node drains."""
    if wait_ms == 0 or min_bytes == 0 or node.is_draining or _has_enough(partition, offset, min_bytes):
        return
    node.begin_long_poll()
    try:
        async with asyncio.timeout(wait_ms / 1000):
            while not node.is_draining and not _has_enough(partition, offset, min_bytes):
                await partition.wait_for_high_watermark(max(partition.high_watermark, offset) + 1)
    except TimeoutError:
        pass
    finally:
        node.end_long_poll()


def _has_enough(partition: Partition, offset: int, min_bytes: int) -> bool:
    if offset < partition.log.local_log_start:
        return True
    limit = partition.read_limit
    return offset < limit[0] and (min_bytes <= 1 or available_bytes(partition.log, offset, *limit) >= min_bytes)


async def _answer(
    node: Node, partition: Partition, offset: int, chunk: Chunk | None, query: dict[str, Any], media_type: str
) -> web.Response:
    data = b"" if chunk is None else chunk.data
    next_offset = offset if chunk is None else chunk.next_offset
    node.metrics.fetch_bytes.inc(len(data))
    if media_type == record_batch.MEDIA_TYPE:
        headers = _position_headers(partition, next_offset, media_type)
        if data:
            headers["Penstock-Base-Offset"] = str(record_batch.read_header(data).base_offset)
        return web.Response(body=data, headers=headers)

    def render() -> tuple[bytes, int]:
        outs, end = _decode(data, offset, next_offset, query["max_records"], query["value"])
        return _render(partition, outs, end, media_type, query["ndjson"]), end

    body, next_offset = await node.off_loop(len(data), render)
    return web.Response(body=body, headers=_position_headers(partition, next_offset, media_type))


def _decode(
    data: bytes, offset: int, next_offset: int, max_records: int | None, form: str | None
) -> tuple[list[Out], int]:
    """The records at or after the offset, at most so many, and the offset to go on from."""
    outs: list[Out] = []
    readable: list[Record] = []
    for position, header in record_batch.walk(data):
        try:
            if not record_batch.has_valid_crc(data, position, header):
                raise InvalidBatch("checksum")
            records = record_batch.decode_one(data[position : position + header.size_bytes])
        except InvalidBatch:
            outs += record_json.records_out(readable, form)
            readable = []
            outs.append(Undecodable(max(header.base_offset, offset), header.next_offset - 1))
        else:
            readable += records if records[0].offset >= offset else [r for r in records if r.offset >= offset]
        if max_records is not None and len(outs) + len(readable) >= max_records:
            break
    outs += record_json.records_out(readable[: None if max_records is None else max(0, max_records - len(outs))], form)
    if max_records is not None and outs and len(outs) >= max_records:
        outs = outs[:max_records]
        last = outs[-1]
        return outs, (last.last_offset if isinstance(last, Undecodable) else last.offset) + 1
    return outs, next_offset


def _render(partition: Partition, outs: list[Out], next_offset: int, media_type: str, ndjson: str) -> bytes:
    if media_type == NDJSON:
        if ndjson == "values":
            return b"".join(record_json.bare_value(out) + b"\n" for out in outs)
        return record_json.encode_lines(outs)
    fields = {
        "topic": partition.topic,
        "partition": partition.number,
        "next_offset": next_offset,
        "high_watermark": partition.high_watermark,
        "log_start": partition.log.log_start,
    }
    return record_json.encode_document(fields, outs)


def _position_headers(partition: Partition, next_offset: int, media_type: str) -> dict[str, str]:
    return {
        "Content-Type": media_type,
        "Penstock-Next-Offset": str(next_offset),
        "Penstock-High-Watermark": str(partition.high_watermark),
        "Penstock-Log-Start": str(partition.log.log_start),
    }


async def find_offsets(request: web.Request) -> web.Response:
    """GET /v1/topics/{topic}/partitions/{partition}/offsets"""
    node = request.app[NODE]
    query = read_query(request, {"timestamp": Text(None, 64)})
    partition = node.shard.partition(request.match_info["topic"], path_partition(request))
    found = None
    if query["timestamp"] is not None:
        found = await find_time(node, partition, parse_timestamp(query["timestamp"]))
    document = {
        "topic": partition.topic,
        "partition": partition.number,
        "log_start": partition.log.log_start,
        "log_end": partition.log_end,
        "high_watermark": partition.high_watermark,
        "offset": None if found is None else found[0],
        "timestamp": None if found is None else found[1],
    }
    return web.json_response(document)
