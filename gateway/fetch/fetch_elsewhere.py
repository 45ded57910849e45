"""Fetches of a partition that another process leads, or whose leader may change.

A follower in the reader's rack is asked first, then a process of this node, which may answer with a place in a file,
and else the leader, by the router.
"""

from __future__ import annotations

from typing import cast

import msgspec
from msgspec import UNSET, structs

from engine.errors import EngineError
from engine.format import keyed_batch
from engine.format.batch import MEDIA_TYPE, read_header
from engine.format.batch_header import has_no_records
from gateway.connections.response_buffers import sendable_bytes
from gateway.fetch import partition_reads
from gateway.fetch.context import FetchContext
from gateway.fetch.partition_reads import FETCH_CALL, FILTERED_FETCH_CALL, Answer, PlacedRecords
from gateway.fetch.rendered_cache import RenderedFetch
from gateway.fetch.request import FetchRequest
from gateway.http.request import Request
from gateway.links.link import LinkDown, LinkLost
from gateway.routing.calls import PartitionArguments
from gateway.routing.leader_headers import LEADER, leader_headers, may_be_led, note_owner
from gateway.routing.router import CALL_S


async def fetch_elsewhere(
    request: Request, context: FetchContext, topic: str, number: int, parsed: FetchRequest
) -> RenderedFetch:
    """Answers a fetch at another process, or at this one if it comes to lead. Raises Problem, EngineError."""
    headers, body = await _fetch_remote(context, topic, number, _of_sendable(request, context, parsed))
    if not may_be_led(request.connection):
        headers = {name: value for name, value in headers.items() if name != LEADER}
    note_owner(request.connection, context.peers, context.partitions.topic_id(topic, number), [number])
    return RenderedFetch(headers, body)


def _of_sendable(request: Request, context: FetchContext, parsed: FetchRequest) -> FetchRequest:
    """Returns a fetch of no more bytes than its client can be sent."""
    max_bytes = parsed.max_bytes or context.settings.fetch_bytes_default
    given_bytes = sendable_bytes(request, max_bytes)
    return parsed if given_bytes == max_bytes else structs.replace(parsed, max_bytes=given_bytes)


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
            found = await partition_reads.fetch_local(context.reads, partition, request)
            return found.headers, found.body
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
