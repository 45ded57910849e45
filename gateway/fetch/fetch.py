"""The path of a fetch of one partition: parse, find the partition's owner, read there, answer.

request.py parses, partition_reads.py answers: reader.py reads, rendering.py renders. Only fetches that need it enter
the router (a partition of another process), the event streams, or response_compression.py (large bodies).
"""

from __future__ import annotations

from functools import partial
from typing import cast

import msgspec
import orjson
from msgspec import UNSET, Struct, structs

from engine.errors import EngineError
from engine.format import keyed_batch
from engine.format.batch import MEDIA_TYPE, read_header
from engine.format.batch_header import has_no_records
from gateway.connections.response_buffers import sendable_bytes
from gateway.fetch import partition_reads
from gateway.fetch.cloud_events import BINARY
from gateway.fetch.context import FetchContext
from gateway.fetch.partition_reads import FETCH_CALL, FILTERED_FETCH_CALL, Answer, PlacedRecords
from gateway.fetch.positions import FIND_OFFSETS, check_topic
from gateway.fetch.request import JSON, OFFERED, FetchRequest, Timestamp, parse
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
from gateway.links.link import LinkDown, LinkLost
from gateway.produce.cloud_events import EVENT
from gateway.routing.calls import PartitionArguments
from gateway.routing.leader_headers import FORWARD, check_leadership, leader_headers, note_owner
from gateway.routing.router import CALL_S


class OffsetsQuery(Struct, frozen=True):
    """The query of a search for positions."""

    timestamp: Timestamp = None


async def fetch(request: Request, context: FetchContext) -> Response:
    """GET /v1/topics/{topic}/partitions/{partition}/records"""
    accept = request.headers.get("Accept", "")
    if SSE in accept.lower() and prefers_events(accept, OFFERED):
        return await tail_partition(request, context)
    parsed: FetchRequest = request.parsed or parse(request)
    topic, number = request.names["topic"], path_partition(request)
    if FORWARD in request.headers:
        await check_leadership(request, context.router, [(topic, number)])
    if parsed.topic_id is not UNSET:
        await check_topic(context, topic, parsed.topic_id)
    partition = context.partitions.local_partition(topic, number)
    if partition is not None:
        may_stream, sendable = partial(_may_stream, request), partial(sendable_bytes, request)
        headers, body, rest = await partition_reads.fetch_local(context.reads, partition, parsed, may_stream, sendable)
    else:
        parsed = _of_sendable(request, context, parsed)
        headers, body = await _fetch_remote(context, topic, number, parsed)
        note_owner(request.connection, context.peers, context.partitions.topic_id(topic, number), [number])
        rest = None
    headers = headers | hint_of_time(parsed.timestamp)  # a new dict: long polls share theirs
    if STATUS in headers:
        return Response(b"", headers, int(headers.pop(STATUS)))
    if not body and parsed.media_type in (EVENT, BINARY) and "ce-id" not in headers:  # there is no event
        headers.pop("Content-Type", None)
        return Response(b"", headers, 204)
    response = Response(body, headers, rest=rest)
    is_small = rest is None and len(body) < request.http.compress_bytes_min
    return response if is_small else await compress_response(request, response)


def _of_sendable(request: Request, context: FetchContext, parsed: FetchRequest) -> FetchRequest:
    """Returns a fetch of no more bytes than its client can be sent."""
    max_bytes = parsed.max_bytes or context.settings.fetch_bytes_default
    given_bytes = sendable_bytes(request, max_bytes)
    return parsed if given_bytes == max_bytes else structs.replace(parsed, max_bytes=given_bytes)


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


async def _fetch_remote(context: FetchContext, topic: str, number: int, request: FetchRequest) -> Answer:
    """Fetches from a follower in the reader's rack, else from the partition's owner. Raises Problem, EngineError."""
    topic_id = None
    if request.topic_id is not UNSET:
        topic_id, request = request.topic_id, structs.replace(request, topic_id=UNSET)
    if request.rack is not None:
        budget = context.budgets.begin(request.wait_ms)
        found = await _fetch_from_follower(context, topic, number, request, request.rack)
        if found is not None:
            return found
        request = structs.replace(request, wait_ms=budget.wait_left_ms)
    answer = None
    if _may_be_placed(request) and context.peers.is_led_by_sibling(context.partitions.topic_id(topic, number), number):
        budget = context.budgets.begin(request.wait_ms)
        answer = await _fetch_from_sibling(context, topic, number, request)
        request = structs.replace(request, wait_ms=budget.wait_left_ms)
    if answer is None:
        call = FETCH_CALL if request.filters is UNSET else FILTERED_FETCH_CALL
        result, body = await context.router.call(
            call, topic, number, request, wait_ms=request.wait_ms, topic_id=topic_id
        )
        answer = cast(dict[str, str], result), body
    headers, body = answer
    if context.peers.has_others:
        headers = headers | leader_headers(context.peers, context.partitions.topic_id(topic, number), [number])
    return headers, body


async def _fetch_from_follower(
    context: FetchContext, topic_name: str, number: int, request: FetchRequest, rack: str
) -> Answer | None:
    """Fetches from an in-sync follower in the reader's rack.

    Returns None if the leader must be asked: there is no such follower, or it does not know yet that the offset is
    committed.
    """
    topic_id, peers = context.partitions.topic_id(topic_name, number), context.peers
    owner = None if request.offset is None else peers.preferred_read_replica(topic_id, number, rack)
    if owner is None:
        return None
    request = structs.replace(request, from_follower=True)
    try:
        if peers.is_local(owner):
            partition = context.partitions.owned_partition(topic_name, topic_id, number, from_follower=True)
            headers, body, _ = await partition_reads.fetch_local(context.reads, partition, request)
            return headers, body
        arguments = PartitionArguments(topic_id, topic_name, number, peers.known_epoch(topic_id, number), request)
        call = FETCH_CALL if request.filters is UNSET else FILTERED_FETCH_CALL
        return await peers.link(owner).call(call.name, arguments, timeout_s=request.wait_ms / 1000 + CALL_S)
    except EngineError as error:
        if not context.router.may_retry(error):
            raise
        return None


def _may_be_placed(request: FetchRequest) -> bool:
    """Returns whether another shard of this node is asked for a place: the answer is what is stored."""
    return (
        request.media_type == MEDIA_TYPE
        and not request.filters
        and request.offset is not None
        and request.min_bytes == 1
        and request.if_none_match is None
    )


async def _fetch_from_sibling(
    context: FetchContext, topic_name: str, number: int, request: FetchRequest
) -> Answer | None:
    """Fetches from a shard of this node, which may answer with the place of the records in a file.

    Returns None if the file does not have the records any more, or the leader moves: the owner is asked for them. No
    other node is asked for a place: its files are not here. Raises Problem, EngineError.
    """
    peers, topic_id = context.peers, context.partitions.topic_id(topic_name, number)
    placed = structs.replace(request, may_be_placed=True)
    arguments = PartitionArguments(topic_id, topic_name, number, peers.known_epoch(topic_id, number), placed)
    owner = peers.owner(topic_id, number)
    if owner.node_id is not None:
        return None
    try:
        result, body = await peers.link(owner).call(
            FETCH_CALL.name, arguments, timeout_s=request.wait_ms / 1000 + CALL_S
        )
    except EngineError as error:
        if context.router.may_retry(error):
            return None
        if isinstance(error, LinkLost):
            raise LinkDown("the connection to the process that owns the partition was lost") from None
        raise
    if isinstance(result, dict):
        return result, body
    return await _read_range(context, request, msgspec.convert(result, PlacedRecords))


async def _read_range(context: FetchContext, request: FetchRequest, placed: PlacedRecords) -> Answer | None:
    """Reads records at a place in a file of this node. Returns None if the file does not have them any more."""
    headers, place = placed
    assert request.offset is not None
    async with context.reads.local_budget.hold(place.size_bytes):
        chunk = await context.reads.placed.read(place, request.offset)
    if chunk is None or has_no_records(chunk.data) or keyed_batch.has_keyed(chunk.data):
        return None
    headers["Penstock-Base-Offset"] = str(read_header(chunk.data).base_offset)
    return headers, chunk.data
