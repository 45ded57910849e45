"""The path of a fetch of one partition: parse, find the partition's owner, read there, answer.

request.py parses, partition_reads.py reads and record_json.py renders. Only fetches that need it enter the router (a
partition of another process), the event streams, or response_compression.py (large bodies).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
import orjson
from msgspec import UNSET, Struct, structs

from engine.errors import EngineError
from engine.format import keyed_batch
from engine.format.batch import MEDIA_TYPE, read_header
from engine.format.batch_header import has_no_records
from engine.partition.partition import Partition
from engine.partition.shared_file_read import FileRange, file_range_of
from gateway.connections.response_buffers import sendable_bytes
from gateway.fetch import partition_reads
from gateway.fetch.cloud_events import BINARY
from gateway.fetch.context import FetchContext, ReadContext
from gateway.fetch.partition_reads import FETCH_CALL, FILTERED_FETCH_CALL, Answer
from gateway.fetch.positions import FIND_OFFSETS, check_topic
from gateway.fetch.request import JSON, OFFERED, FetchRequest, FilteredFetchRequest, Timestamp, parse
from gateway.fetch.streamed_records import PIECE_BYTES
from gateway.fetch.tail import tail_partition
from gateway.http.caching import STATUS
from gateway.http.content_encoding import choose_encoding
from gateway.http.negotiation import SSE, prefers_events
from gateway.http.query import path_partition, read_query
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.response_compression import compress_response
from gateway.http.times import hint_of_time, parse_timestamp
from gateway.links.link import Handler, LinkDown, LinkLost, handler
from gateway.produce.cloud_events import EVENT
from gateway.routing.calls import PartitionArguments
from gateway.routing.leader_headers import FORWARD, check_leadership, leader_headers, note_owner
from gateway.routing.router import CALL_S

_PLACED = "fetch_placed"
_Found = tuple[dict[str, str], FileRange | None]  # the headers of an answer, and where its bytes are unless they follow


class OffsetsQuery(Struct, frozen=True):
    """The query of a search for positions."""

    timestamp: Timestamp = None


async def fetch(request: Request, context: FetchContext) -> Response:
    """GET /v1/topics/{topic}/partitions/{partition}/records"""
    accept = request.headers.get("Accept", "")
    if SSE in accept.lower() and prefers_events(accept, OFFERED):
        return await tail_partition(request, context)
    wanted: FetchRequest = request.parsed or parse(request)
    topic, number = request.names["topic"], path_partition(request)
    if FORWARD in request.headers:
        await check_leadership(request, context.router, [(topic, number)])
    if wanted.topic_id is not UNSET:
        await check_topic(context, topic, wanted.topic_id)
    partition = context.partitions.local_partition(topic, number)
    if partition is not None:
        may_stream, sendable = partial(_may_stream, request), partial(sendable_bytes, request)
        headers, body, rest = await partition_reads.fetch_local(context.reads, partition, wanted, may_stream, sendable)
    else:
        wanted = _of_sendable(request, context, wanted)
        headers, body = await _fetch_remote(context, topic, number, wanted)
        note_owner(request.connection, context.peers, context.partitions.topic_id(topic, number), [number])
        rest = None
    headers = headers | hint_of_time(wanted.timestamp)  # a new dict: long polls share theirs
    if STATUS in headers:
        return Response(b"", headers, int(headers.pop(STATUS)))
    if not body and wanted.media_type in (EVENT, BINARY) and "ce-id" not in headers:  # there is no event
        headers.pop("Content-Type", None)
        return Response(b"", headers, 204)
    response = Response(body, headers, rest=rest)
    is_small = rest is None and len(body) < request.http.compress_bytes_min
    return response if is_small else await compress_response(request, response)


def _of_sendable(request: Request, context: FetchContext, wanted: FetchRequest) -> FetchRequest:
    """Returns a fetch of no more bytes than its client can be sent."""
    max_bytes = wanted.max_bytes or context.settings.fetch_bytes_default
    given_bytes = sendable_bytes(request, max_bytes)
    return wanted if given_bytes == max_bytes else structs.replace(wanted, max_bytes=given_bytes)


def _may_stream(request: Request) -> bool:
    """Returns whether the answer may be sent in pieces: a client of HTTP/1.0 would take a torn one for whole.

    With a `compress_bytes_min` above a piece, the size of the whole answer decides whether it is compressed.
    """
    if request.method == "HEAD" or request.version == "1.0":
        return False
    is_compressed_from = request.http.compress_bytes_min
    return is_compressed_from <= PIECE_BYTES or choose_encoding(request.headers.get("Accept-Encoding", "")) is None


async def find_offsets(request: Request, context: FetchContext) -> Response:
    """GET /v1/topics/{topic}/partitions/{partition}/offsets"""
    query = read_query(request, OffsetsQuery)
    timestamp = None if query.timestamp is None else parse_timestamp(query.timestamp)
    topic, number = request.names["topic"], path_partition(request)
    document, _ = await context.router.call(FIND_OFFSETS, topic, number, timestamp)
    return Response(body=orjson.dumps(document), headers={"Content-Type": JSON} | hint_of_time(timestamp))


async def _fetch_remote(context: FetchContext, topic: str, number: int, wanted: FetchRequest) -> Answer:
    """Fetches from a follower in the reader's rack, else from the partition's owner. Raises Problem, EngineError."""
    topic_id = None
    if wanted.topic_id is not UNSET:
        topic_id, wanted = wanted.topic_id, structs.replace(wanted, topic_id=UNSET)
    if wanted.rack is not None:
        budget = context.budgets.begin(wanted.wait_ms)
        found = await _fetch_from_follower(context, topic, number, wanted, wanted.rack)
        if found is not None:
            return found
        wanted = structs.replace(wanted, wait_ms=budget.wait_left_ms)
    found = None
    if _may_be_placed(wanted) and context.peers.is_led_by_sibling(context.partitions.topic_id(topic, number), number):
        budget = context.budgets.begin(wanted.wait_ms)
        found = await _fetch_placed(context, topic, number, wanted)
        wanted = structs.replace(wanted, wait_ms=budget.wait_left_ms)
    if found is None:
        call = FILTERED_FETCH_CALL if isinstance(wanted, FilteredFetchRequest) else FETCH_CALL
        found = await context.router.call(call, topic, number, wanted, wait_ms=wanted.wait_ms, topic_id=topic_id)
    headers, body = found
    if context.peers.has_others:
        headers = headers | leader_headers(context.peers, context.partitions.topic_id(topic, number), [number])
    return headers, body


async def _fetch_from_follower(
    context: FetchContext, topic_name: str, number: int, wanted: FetchRequest, rack: str
) -> Answer | None:
    """Fetches from an in-sync follower in the reader's rack.

    Returns None if the leader must be asked: there is no such follower, or it does not know yet that the offset is
    committed.
    """
    topic_id, peers = context.partitions.topic_id(topic_name, number), context.peers
    owner = None if wanted.offset is None else peers.preferred_read_replica(topic_id, number, rack)
    if owner is None:
        return None
    wanted = structs.replace(wanted, from_follower=True)
    try:
        if peers.is_local(owner):
            partition = context.partitions.owned_partition(topic_name, topic_id, number, from_follower=True)
            return await partition_reads.fetch(context.reads, partition, wanted)
        arguments = PartitionArguments(topic_id, topic_name, number, peers.known_epoch(topic_id, number), wanted)
        operation = "fetch_nearby_filtered" if isinstance(wanted, FilteredFetchRequest) else "fetch_nearby"
        return await peers.link(owner).call(operation, arguments, timeout_s=wanted.wait_ms / 1000 + CALL_S)
    except EngineError as error:
        if not context.router.may_retry(error):
            raise
        return None


def follower_fetch_handlers(context: ReadContext) -> dict[str, Handler]:
    """Returns the handlers of calls that read a follower's records."""

    async def fetch_nearby(one: PartitionArguments[Any], _: bytes) -> Answer:
        partition = context.partitions.owned_partition(
            one.topic, one.topic_id, one.partition, one.leader_epoch, from_follower=True
        )
        return await partition_reads.fetch(context, partition, one.arguments)

    return {
        "fetch_nearby": handler(PartitionArguments[FetchRequest], fetch_nearby),
        "fetch_nearby_filtered": handler(PartitionArguments[FilteredFetchRequest], fetch_nearby),
    }


def _may_be_placed(wanted: FetchRequest) -> bool:
    """Returns whether another shard of this node is asked for a place: the answer is what is stored."""
    return (
        wanted.media_type == MEDIA_TYPE
        and type(wanted) is FetchRequest
        and wanted.offset is not None
        and wanted.min_bytes == 1
        and wanted.if_none_match is None
    )


async def _fetch_placed(context: FetchContext, topic_name: str, number: int, wanted: FetchRequest) -> Answer | None:
    """Returns None if the file does not have the records any more, or the leader moves: the owner is asked for them.

    Raises Problem, EngineError.
    """
    peers, topic_id = context.peers, context.partitions.topic_id(topic_name, number)
    arguments = PartitionArguments(topic_id, topic_name, number, peers.known_epoch(topic_id, number), wanted)
    try:
        link = peers.link_to_owner(topic_id, number)
        found, body = await link.call(_PLACED, arguments, timeout_s=wanted.wait_ms / 1000 + CALL_S)
    except EngineError as error:
        if context.router.may_retry(error):
            return None
        if isinstance(error, LinkLost):
            raise LinkDown("the connection to the process that owns the partition was lost") from None
        raise
    headers, place = msgspec.convert(found, _Found)
    if place is None:
        return headers, body
    assert wanted.offset is not None
    async with context.reads.local_budget.hold(place.size_bytes):
        chunk = await context.reads.placed.read(place, wanted.offset)
    if chunk is None or has_no_records(chunk.data) or keyed_batch.has_keyed(chunk.data):
        return None
    headers["Penstock-Base-Offset"] = str(read_header(chunk.data).base_offset)
    return headers, chunk.data


def placed_fetch_handlers(context: ReadContext) -> dict[str, Handler]:
    """Returns the handler of the call at the owner."""

    def owned(one: PartitionArguments[FetchRequest]) -> Partition:
        return context.partitions.owned_partition(one.topic, one.topic_id, one.partition, one.leader_epoch)

    def begin_place(one: PartitionArguments[FetchRequest], _: bytes) -> asyncio.Future[_Found] | None:
        found = _placed(context, owned(one), one.arguments)
        if found is None:
            return None
        placed: asyncio.Future[_Found] = asyncio.get_running_loop().create_future()
        placed.set_result(found)
        return placed

    async def place(one: PartitionArguments[FetchRequest], _: bytes) -> tuple[_Found, bytes | bytearray]:
        partition = owned(one)
        found = _placed(context, partition, one.arguments)  # behind a call whose task had not begun
        if found is not None:
            return found, b""
        headers, body = await partition_reads.fetch(context, partition, one.arguments)
        return (headers, None), body

    return {_PLACED: handler(PartitionArguments[FetchRequest], place, begin_place)}


def _placed(context: ReadContext, partition: Partition, wanted: FetchRequest) -> _Found | None:
    """Returns the place of records that are there now, with their headers; None if the owner reads them."""
    settings = context.settings
    assert wanted.offset is not None
    if partition.validator.fencing.has_been_used:
        return None
    context.partitions.replica(partition).check_serves_reads(wanted.leader_epoch)
    max_bytes = min(wanted.max_bytes or settings.fetch_bytes_default, settings.fetch_bytes_max)
    place = file_range_of(partition, wanted.offset, max_bytes)
    if place is None:
        return None
    partition_reads.count_bytes(context, partition, place.size_bytes)
    return partition_reads.placed_headers(context, partition, wanted, place.next_offset), place
