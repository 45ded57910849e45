"""The path of a fetch of one partition: parse, find the partition, look, wait, answer.

request.py parses, partition_reads.py answers: reader.py reads, rendering.py renders. A fetch of a partition of this
process that finds records in memory is answered in one call: in that of the request, or in a turn of the loop if its
client has had its share of this one. One that finds none waits without a task: it is itself a waiter of the high
watermark and of its deadline, and answers in the call that ends its wait. A fetch ends with a coroutine, which has the
time that is left, if it must wait for the disk, the store, a thread, another process or other reads. Only fetches that
need it enter fetch_elsewhere.py (a partition of another process), the event streams, or response_compression.py (large
bodies).
Invariants: a fetch ends once, by an outcome or by its client; nothing is raised into the append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

import orjson
from msgspec import UNSET, Struct, structs
from multidict import istr

from engine.format.batch import MEDIA_TYPE
from engine.partition.partition import Partition
from engine.runtime.loop_waits import loop_waits
from gateway.connections.response_buffers import sendable_bytes
from gateway.fetch.cloud_events import BINARY, EVENT_FORMS
from gateway.fetch.context import FetchContext
from gateway.fetch.fetch_elsewhere import fetch_elsewhere
from gateway.fetch.partition_reads import (
    STORED_BYTES_MAX,
    check_answers,
    fetch_local,
    fetch_now,
    start_now,
)
from gateway.fetch.positions import FIND_OFFSETS, check_topic
from gateway.fetch.reader import RecordWait, Source
from gateway.fetch.rendered_cache import RenderedFetch
from gateway.fetch.request import JSON, OFFERED, OFFSET, FetchRequest, Timestamp, parse
from gateway.fetch.schema_values import decode_values
from gateway.fetch.streamed_records import PIECE_BYTES
from gateway.fetch.tail import tail_partition
from gateway.http.caching import NO_STORE, STATUS
from gateway.http.content_encoding import choose_encoding
from gateway.http.negotiation import SSE, prefers
from gateway.http.offload import TIMED_BYTES
from gateway.http.query import partition_number, path_partition, read_query
from gateway.http.request import Handled, Request, response_of
from gateway.http.response import Response
from gateway.http.response_compression import compress_response
from gateway.http.times import hint_of_time, parse_timestamp
from gateway.produce.cloud_events import EVENT
from gateway.routing.leader_headers import FORWARD, check_leadership

_new = tuple.__new__  # of a value without a frame for it
_FORWARD = istr(FORWARD)  # the look-up of an istr takes half the time of a plain text


class OffsetsQuery(Struct, frozen=True):
    """The query of a search for positions."""

    timestamp: Timestamp = None


def fetch(request: Request, context: FetchContext) -> Handled:
    """GET /v1/topics/{topic}/partitions/{partition}/records. Raises Problem, EngineError."""
    parsed: FetchRequest | None = request.parsed
    if parsed is None:
        accept = request.headers.get("Accept", "")
        if prefers(accept, SSE, OFFERED):
            return tail_partition(request, context)
        parsed = parse(request)
    topic, number = request.names["topic"], partition_number(request.names["partition"])
    if request.space is not None and parsed.media_type in EVENT_FORMS:
        parsed = structs.replace(parsed, hidden=request.space.prefix)
    if _FORWARD in request.headers or parsed.topic_id is not UNSET:
        return _check_and_fetch(request, context, parsed, topic, number)
    partition = context.partitions.local_partition(topic, number)
    if partition is None:
        return _check_and_fetch(request, context, parsed, topic, number)
    return PendingFetch(request, context, parsed, partition).begin()


async def _check_and_fetch(
    request: Request, context: FetchContext, parsed: FetchRequest, topic: str, number: int
) -> Response:
    """Answers a fetch of another process, or one that names the process or the topic that it is for.

    Raises Problem, EngineError.
    """
    await check_leadership(request, context.router, [(topic, number)])
    if parsed.topic_id is not UNSET:
        await check_topic(context, topic, parsed.topic_id)
    partition = context.partitions.local_partition(topic, number)
    if partition is not None:
        return await response_of(PendingFetch(request, context, parsed, partition).begin())
    parsed = structs.replace(parsed, offset=_offset_of(request, parsed))
    sent = structs.replace(parsed, by_schema=UNSET)
    answer = await fetch_elsewhere(request, context, topic, number, sent)
    return await response_of(_respond(request, context, parsed, answer))


def _offset_of(request: Request, parsed: FetchRequest) -> int | None:
    """Returns the offset that a request names. `parsed` may be that of a request with another one."""
    found = OFFSET.search(request.head.query)
    return parsed.offset if found is None else int(found[1])


class PendingFetch(RecordWait[Handled]):
    """One fetch of a partition that this process leads as long as it exists.

    `parsed` may be that of a request with another offset (request.py).
    """

    __slots__ = ("_context", "_deadline", "_offset", "_parsed", "_partition", "_request")

    def __init__(self, request: Request, context: FetchContext, parsed: FetchRequest, partition: Partition) -> None:
        self.is_over = self.is_late = False  # without the constructors above: each has a frame
        self._receive = self._bucket = None
        self._waits = ()
        self._deadline = 0.0  # it does not wait
        self._request = request
        self._context = context
        self._parsed = parsed
        self._partition = partition

    def __repr__(self) -> str:
        return f"PendingFetch({self._partition.name}, {self._parsed}, is_over={self.is_over})"

    def begin(self) -> Handled:
        """Returns the answer, a coroutine that waits for it, or this value. Raises Problem, EngineError."""
        request, parsed, partition, reads = self._request, self._parsed, self._partition, self._context.reads
        if parsed.leader_epoch or partition.offline is not None:
            check_answers(reads, partition, parsed)
        if parsed.timestamp is not None:
            return self._wait_for_answer(None)
        offset = _offset_of(request, parsed)
        self._offset = offset = start_now(reads, partition, parsed) if offset is None else offset
        is_at_end = offset == partition.watermark.position and not reads.lifecycle.is_draining
        if is_at_end and parsed.wait_ms and parsed.min_bytes > 0:
            reads.long_polls.begin()
            self._loop = loop = asyncio.get_running_loop()
            self._deadline = deadline = loop.time() + parsed.wait_ms / 1000
            self.begin_wait((_new(Source, (partition, offset, False)),), deadline)
            return self
        turns, client = loop_waits().turns, id(request.connection)
        if turns.must_wait(client):
            turns.call(client, partial(self._end, STORED_BYTES_MAX))
            return self
        return self._answer(STORED_BYTES_MAX)

    def set_result(self, position: object, /) -> None:
        """Answers, or waits on: the wait may have ended without records."""
        partition, reads = self._partition, self._context.reads
        self.end_wait()
        reads.long_polls.end()
        is_at_end = self._offset == partition.watermark.position and partition.offline is None
        if is_at_end and not self.is_late and not reads.lifecycle.is_draining:
            reads.long_polls.begin()
            self.begin_wait((Source(partition, self._offset),), self._deadline)
        else:
            self._end(TIMED_BYTES)

    def cancel(self) -> None:
        if self._waits:
            self._context.reads.long_polls.end()
        super().cancel()

    def _end(self, stored_max: int) -> None:
        """Ends the fetch, unless its client has left."""
        if self.is_over:
            return
        try:
            outcome: Handled | Exception = self._answer(stored_max)
        except Exception as error:
            outcome = error
        self.complete(outcome)

    def _answer(self, stored_max: int) -> Handled:
        """Returns the answer with what is there now, or a coroutine that waits for it. Raises EngineError."""
        parsed, offset, partition = self._parsed, self._offset, self._partition
        if partition.offline is not None:
            raise partition.offline
        position = partition.watermark.position
        if not partition.log.log_start <= offset <= position:  # `fetch_now` refuses what only the store has
            return self._wait_for_answer(offset)
        if offset < position and (parsed.filters or (parsed.min_bytes > 1 and parsed.wait_ms)):
            return self._wait_for_answer(offset)
        request = self._request
        found = fetch_now(self._context.reads, partition, parsed, offset, request.connection, stored_max)
        return self._wait_for_answer(offset) if found is None else _respond(request, self._context, parsed, found)

    async def _wait_for_answer(self, offset: int | None) -> Response:
        """Answers with records that take more than a look. `offset` is that of the first one, if it is known."""
        request, parsed, reads = self._request, self._parsed, self._context.reads
        wait_ms = parsed.wait_ms
        if self._deadline:
            wait_ms = 0 if self.is_late else max(0, round((self._deadline - self._loop.time()) * 1000))
        parsed = structs.replace(parsed, offset=None if parsed.offset is None else offset, wait_ms=wait_ms)
        source = None if offset is None else Source(self._partition, offset)
        may_stream, sendable = partial(_may_stream, request, parsed), partial(sendable_bytes, request)
        answer = await fetch_local(reads, self._partition, parsed, may_stream, sendable, source)
        return await response_of(_respond(request, self._context, parsed, answer))


def _respond(
    request: Request, context: FetchContext, parsed: FetchRequest, found: RenderedFetch
) -> Response | Coroutine[Any, Any, Response]:
    """Returns the response with what was found, or a coroutine that decodes or compresses it."""
    if parsed.by_schema is True:
        return _decode(request, context, parsed, found)
    headers, body, rest, form = found
    if request.space is not None and parsed.media_type == JSON:
        body = request.space.shown_records(body)
    if parsed.timestamp is not None:
        headers = headers | hint_of_time(parsed.timestamp)
    elif form is not None and len(body) < request.http.compress_bytes_min and request.head.method == "GET":
        return Response(body, headers, 200, form)
    if STATUS in headers:
        headers = dict(headers)  # long polls share theirs
        return Response(b"", headers, int(headers.pop(STATUS)))
    if not body and parsed.media_type in (EVENT, BINARY) and "ce-id" not in headers:  # there is no event
        return Response(b"", {name: value for name, value in headers.items() if name != "Content-Type"}, 204)
    is_stored = parsed.media_type == MEDIA_TYPE
    if rest is None and (is_stored or len(body) < request.http.compress_bytes_min):
        return Response(body, headers)
    return compress_response(request, Response(body, dict(headers), rest=rest))


async def _decode(request: Request, context: FetchContext, parsed: FetchRequest, found: RenderedFetch) -> Response:
    """Responds with values as JSON by their schemas. No cache keeps it: the registry may know a schema later."""
    assert found.rest is None, parsed
    headers = {name: value for name, value in found.headers.items() if name != "ETag"} | NO_STORE
    body = bytes(found.body)
    if body:
        [body] = await decode_values([body], parsed.media_type, context.schemas, context.offload)
    parsed = structs.replace(parsed, by_schema=UNSET)
    return await response_of(_respond(request, context, parsed, RenderedFetch(headers, body)))


def _may_stream(request: Request, parsed: FetchRequest) -> bool:
    """Returns whether the answer may be sent in pieces: a client of HTTP/1.0 would take a torn one for whole.

    With a `compress_bytes_min` above a piece, the size of the whole answer decides whether it is compressed.
    """
    if request.method == "HEAD" or request.version == "1.0" or parsed.by_schema is True:
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
