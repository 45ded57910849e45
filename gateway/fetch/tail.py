"""Live tails: a partition or a whole topic as an event stream that runs until its client leaves.

Parses the request and runs the loop that reads and writes. event_stream.py encodes, multi_fetch.py reads and waits.
Invariants: (1) an error before the beginning is a problem document, a later one an event `problem` and the end; a
client that resumes a stream waits out transient problems; (2) what is read is written before more is read, and a client
that takes nothing for `stream_stall_ms` is disconnected, so a stream holds at most one piece, and all streams together
at most the stream budget, beside what rendered_cache.py keeps; (3) a stream counts as one long poll, and ends at once
when the node drains; (4) a topic that grows loses no record: its streams end, and a client that resumes reads the
new partitions from their start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import MappingProxyType
from typing import Annotated

from msgspec import Struct

from engine.errors import EngineError
from gateway.connections.send_buffers import ClientStalled
from gateway.fetch import event_stream
from gateway.fetch.context import FetchContext
from gateway.fetch.multi_fetch import MOVING, MultiFetch
from gateway.fetch.positions import FIND_OFFSETS, Positions, check_topic, is_of_topic
from gateway.fetch.reader import Limits, PartitionRead
from gateway.fetch.rendered_cache import Part
from gateway.fetch.request import Filter, From, Offset, SchemaForm, Timestamp, TopicId, check_filter
from gateway.http.negotiation import SSE, by_preference
from gateway.http.problems import RETRY_AFTER_S, Problem, from_engine, from_fields
from gateway.http.query import Text, path_partition, read_query
from gateway.http.request import Request
from gateway.http.response import Response, Stream
from gateway.http.times import hint_of_time, parse_timestamp
from gateway.routing.leader_headers import check_leadership, read_leader_epoch

log = logging.getLogger("penstock.gateway")

PIECE_BYTES = 64 * 1024  # stored bytes read at once: at most this much is held by each of 10,000 stalled streams
WRITE_BYTES = 64 * 1024  # written at once: a piece may be one large batch, and a client may take no part of it
CAUGHT_UP_BYTES = PIECE_BYTES  # as read and as events: a smaller piece was not cut, so the stream waits before it reads
PAUSE_S = 0.25  # before another look at records that were reported and are not readable, such as while a shard restarts
NO_ROOM_PAUSE_S = 0.5  # before another look at the budget, which clients of other streams free
TRANSIENT = (*MOVING, "overloaded", "too_many_open_files", "store_unavailable")  # problems that a stream waits out
TRANSIENT_STATUSES = (429, 503, 504)  # before it has begun
HEADERS = MappingProxyType({"Content-Type": SSE, "Cache-Control": "no-store", "X-Accel-Buffering": "no"})


class StartQuery(Struct, frozen=True):
    """The start of a stream whose client does not resume, and the form of values."""

    from_: From = None
    timestamp: Timestamp = None
    value: SchemaForm = None
    filter: Filter = ()


class PartitionQuery(StartQuery, frozen=True):
    """The query of an event stream of one partition."""

    offset: Offset = None
    topic_id: TopicId = None


class TopicQuery(StartQuery, frozen=True):
    """The query of an event stream of a topic. Longer positions fit a header."""

    positions: Annotated[str | None, Text()] = None


async def tail_partition(request: Request, context: FetchContext) -> Response:
    """GET /v1/topics/{topic}/partitions/{partition}/records as `text/event-stream`"""
    name, number = request.names["topic"], path_partition(request)
    query = read_query(request, PartitionQuery)
    check_filter(query.filter)
    event_id = request.headers.get("Last-Event-ID") or ""
    if query.topic_id is not None and not event_id:
        await check_topic(context, name, query.topic_id)
    is_other = not await is_of_topic(context, name, event_id)
    topic_id, epoch = context.partitions.topic_id(name, number), read_leader_epoch(request)
    await check_leadership(request, context.router, [(name, number)])
    given = None if query.offset is None else [query.offset]
    starts = await _starts(request, context, query, given, name, [number], is_other=is_other)
    entries = [PartitionRead(name, topic_id, number, starts[0], epoch)]
    return await Tail(context, entries, query, names_partition=False, is_other=is_other).answer(request)


async def tail_topic(request: Request, context: FetchContext) -> Response:
    """GET /v1/topics/{topic}/records. Raises Problem."""
    name = request.names["topic"]
    known = context.topics.topic(name).record.partitions
    query = read_query(request, TopicQuery)
    check_filter(query.filter)
    positions = request.headers.get("Last-Event-ID") or query.positions or ""
    is_other = not await is_of_topic(context, name, positions)
    if not is_other and (count := event_stream.count_of_id(positions)) > known:
        await context.topics.refresh(name, count)
    record = context.topics.topic(name).record
    if SSE not in by_preference(request.headers.get("Accept", "")):
        text = f"a topic is read as {SSE}: request it in Accept, or fetch each partition"
        raise Problem("not_acceptable", text)
    if record.partitions > context.settings.fetch_partitions_max:
        text = f"the topic has {record.partitions} partitions, too many for one stream: tail them one by one"
        raise Problem("not_acceptable", text, limit=context.settings.fetch_partitions_max)
    numbers = range(record.partitions)
    await check_leadership(request, context.router, [(name, number) for number in numbers])
    given = None
    if query.positions is not None and not is_other:
        given = _query_positions(query.positions, record.partitions)
    starts = await _starts(request, context, query, given, name, numbers, is_other=is_other)
    entries = [
        PartitionRead(name, record.topic_id, number, start) for number, start in zip(numbers, starts, strict=True)
    ]
    return await Tail(context, entries, query, names_partition=True, is_other=is_other).answer(request)


def resume_later(request: Request, context: FetchContext, problem: Problem) -> Response | None:
    """Returns a stream that ends at once with a time to reconnect, if the client resumes and the problem is transient.

    Returns None otherwise. A browser's EventSource stops permanently at a status other than 200. The time is random
    between `Retry-After` and twice that, so that rejected streams do not reconnect together.
    """
    is_resuming = request.method == "GET" and request.headers.get("Last-Event-ID")
    if not is_resuming or problem.status not in TRANSIENT_STATUSES:
        return None
    if SSE not in by_preference(request.headers.get("Accept", "")):
        return None
    wait_ms = round(1000 * context.budgets.jitter(2 * RETRY_AFTER_S))
    return Response(body=b": %b\nretry: %d\n\n" % (problem.code.encode(), wait_ms), headers=dict(HEADERS))


class Tail:
    """One stream and its position in each of its partitions."""

    def __init__(
        self,
        context: FetchContext,
        entries: Sequence[PartitionRead],
        query: StartQuery,
        *,
        names_partition: bool,
        is_other: bool = False,
    ) -> None:
        self._context = context
        self._topic, self._topic_id = entries[0].topic, entries[0].topic_id
        self._is_other = is_other  # the client resumes at positions of a deleted topic of this name
        self._many = MultiFetch(context, entries, query.filter)
        self._positions = [one.offset for one in entries]
        self._query = query
        self._has_moved = False  # since the last look
        self._is_ahead = False  # of the positions that the client knows: no record passed the filter
        self._names_partition = names_partition
        self._parts: list[Part] = []  # read and not rendered yet; no other reference may exist

    async def answer(self, request: Request) -> Response:
        """Returns the stream once it has ended. Raises Problem before it begins."""
        started = time.perf_counter()
        context = self._context
        with context.long_polls.waiting(len(self._positions)):
            self._parts = await self._many.read_with_retries(self._limits())
            problem = _problem_of(self._parts)
            if (
                problem is None and context.lifecycle.is_refusing
            ):  # a stream that begins and ends at once with a time to reconnect
                problem = Problem("draining", "the node is stopping")
            if problem is not None and not _is_waited_out(problem, request):
                raise problem
            if request.method == "HEAD":
                return Response(headers=dict(HEADERS))
            start = self._query.timestamp
            hint = {} if start is None else hint_of_time(parse_timestamp(start))
            answer = request.begin_stream(HEADERS | request.answer_headers | hint)
            context.metrics.count_answer("tail", 200, time.perf_counter() - started)
            await stream(context, request, answer, self._from_opening)
        return Response(is_streamed=True)

    async def _from_opening(self, request: Request, answer: Stream) -> None:
        opening = event_stream.opening(self._topic_id, self._positions)
        if self._is_other:
            opening += event_stream.recreated(visible_topic(request, self._topic), self._topic_id)
        await self._write(answer, opening)
        await self.run(request, answer)

    async def run(self, request: Request, answer: Stream) -> None:
        """Runs until the node drains or a problem ends it; a client's leave cancels it. Raises the problem."""
        context, loop = self._context, asyncio.get_running_loop()
        heartbeat_s = context.settings.stream_heartbeat_ms / 1000
        written_at, woken_early = loop.time(), False
        while True:
            size_bytes = await self._room()
            with context.stream_budget.hold(size_bytes):
                piece, problem = await self._piece()
                has_moved, self._has_moved = self._has_moved, False
                woken_early = woken_early and not has_moved
                if piece:
                    await self._write(answer, piece)
                    written_at = loop.time()
                    piece = b""  # it would be kept during the next read otherwise
            if problem is not None and problem.code not in TRANSIENT:
                raise problem
            if context.lifecycle.is_draining or self._has_grown():
                await self._write(answer, event_stream.FAREWELL)
                return
            if size_bytes < CAUGHT_UP_BYTES:  # nothing, or so little that a read behind it would find nothing
                if not has_moved and (problem is not None or woken_early):
                    await asyncio.sleep(PAUSE_S)
                due_s = written_at + heartbeat_s - loop.time()
                if due_s <= 0:
                    is_ahead, self._is_ahead = self._is_ahead, False
                    heartbeat = (
                        event_stream.position(self._topic_id, self._positions) if is_ahead else event_stream.HEARTBEAT
                    )
                    await self._write(answer, heartbeat)
                    written_at, due_s = loop.time(), heartbeat_s
                await self._many.wait_for_any(due_s)
                woken_early = loop.time() < written_at + heartbeat_s
            await self._read()

    def _has_grown(self) -> bool:
        """Returns whether the topic has new partitions. Checked at the next event or heartbeat."""
        topic = self._context.topics.get(self._many.entries[0].topic) if self._names_partition else None
        return topic is not None and topic.record.partitions > len(self._positions)

    async def _read(self) -> None:
        self._parts = await self._many.read(self._limits())

    def _limits(self) -> Limits:
        return Limits(PIECE_BYTES, None, self._query.value, next(self._context.rotation), as_lines=True)

    async def _room(self) -> int:
        """Waits for budget; meanwhile drops the last read, to repeat it later. Returns the bytes that it holds."""
        size_bytes = self._size_bytes()
        while size_bytes > WRITE_BYTES and not self._context.stream_budget.has_room(size_bytes):
            self._parts = []
            await asyncio.sleep(NO_ROOM_PAUSE_S)
            if self._context.lifecycle.is_draining:
                break
            if not self._context.stream_budget.has_room(size_bytes):
                continue
            with self._context.stream_budget.hold(size_bytes):
                await self._read()
            size_bytes = self._size_bytes()
        return self._size_bytes()

    def _size_bytes(self) -> int:
        return 2 * sum(len(part.body) for part in self._parts)  # as read, and as events

    async def _piece(self) -> tuple[bytes, Problem | None]:
        """Returns the events of the last read and its problem. Drops the read."""
        parts, self._parts = self._parts, []
        size_bytes = 4 * sum(len(part.body) for part in parts)
        return await self._context.offload.by_size(size_bytes, lambda: self._rendered(parts)), _problem_of(parts)

    def _rendered(self, parts: Sequence[Part]) -> bytes:
        """Returns the events of the last read, and advances the stream's positions."""
        pieces = []
        for index, part in enumerate(parts):
            if part.problem is not None or part.next_offset == self._positions[index]:
                continue
            if part.line_ends:
                pieces.append(self._events(index, part))
            self._positions[index] = part.next_offset
            self._many.advance(index, part.next_offset)
            self._has_moved = True
            is_behind = not part.line_ends or part.line_ends[-1] != part.next_offset
            self._is_ahead = is_behind and bool(self._query.filter)  # then a heartbeat names the position
            if is_behind and not self._is_ahead:
                pieces.append(event_stream.position(self._topic_id, self._positions))
        return b"".join(pieces)

    def _events(self, index: int, part: Part) -> bytes:
        """Returns the events of a part. Streams that share a part and their positions share them."""
        key = (id(part), index, self._names_partition, *self._positions)
        found = self._context.events.get(key)
        if found is not None and found[0] is part:
            return found[1]
        number = self._many.entries[index].partition
        extra = b'"partition":%d,' % number if self._names_partition else b""
        events = event_stream.events(self._topic_id, part.body, part.line_ends, self._positions, index, extra)
        self._context.events.put(key, (part, events), len(part.body) + len(events))
        return events

    async def _write(self, answer: Stream, data: bytes) -> None:
        await write(self._context, answer, data)


async def stream(
    context: FetchContext,
    request: Request,
    answer: Stream,
    run: Callable[[Request, Stream], Awaitable[None]],
    check: Callable[[], None] | None = None,
) -> None:
    """Runs an event stream that has begun. An error becomes its last event, as does the end of its right."""
    context.metrics.event_streams.value += 1
    try:
        async with context.access.waits.ending(request, check or partial(context.access.check, request)):
            await run(request, answer)
    except (ConnectionResetError, asyncio.CancelledError):
        raise  # the client has left
    except Exception as error:
        await write(context, answer, _closing_event(error, request))
    finally:
        context.metrics.event_streams.value -= 1


async def write(context: FetchContext, answer: Stream, data: bytes) -> None:
    """Writes in pieces. Raises ClientStalled when the client takes nothing for too long."""
    stall_s = context.settings.stream_stall_ms / 1000
    view = memoryview(data)
    for start in range(0, len(data), WRITE_BYTES):
        try:
            async with asyncio.timeout(stall_s):
                await answer.write(bytes(view[start : start + WRITE_BYTES]))
        except TimeoutError:
            raise ClientStalled(f"the client has read nothing for {stall_s:g} s") from None


async def _starts(
    request: Request,
    context: FetchContext,
    query: StartQuery,
    given: list[int] | None,
    topic: str,
    numbers: Sequence[int],
    *,
    is_other: bool,
) -> list[int]:
    """Returns the first offset of each partition: after the client's last event, or as the query asks.

    `is_other`: the client resumes at positions of a deleted topic of that name, and gets all of the new one.
    """
    if is_other:
        return await _with_new_partitions(context, [], topic, numbers)
    event_id = request.headers.get("Last-Event-ID")
    if event_id:
        return await _with_new_partitions(context, event_stream.parse_id(event_id, len(numbers)), topic, numbers)
    if sum(way is not None for way in (given, query.from_, query.timestamp)) > 1:
        raise Problem("invalid_query", "the query has two start positions", parameter="from")
    if given is not None:
        return await _with_new_partitions(context, given, topic, numbers)
    timestamp = None if query.timestamp is None else parse_timestamp(query.timestamp)
    asked = (context.router.call(FIND_OFFSETS, topic, number, timestamp) for number in numbers)
    return [_start(found, query) for found, _ in await asyncio.gather(*asked)]


async def _with_new_partitions(
    context: FetchContext, positions: list[int], topic: str, numbers: Sequence[int]
) -> list[int]:
    """Adds the beginnings of partitions that the topic has gained since."""
    asked = (context.router.call(FIND_OFFSETS, topic, number, None) for number in numbers[len(positions) :])
    return positions + [int(found["log_start"]) for found, _ in await asyncio.gather(*asked)]


def _start(found: Positions, query: StartQuery) -> int:
    if query.timestamp is not None and found["offset"] is not None:
        return int(found["offset"])
    return int(found["log_start" if query.from_ == "earliest" else "high_watermark"])


def _query_positions(text: str, count: int) -> list[int]:
    try:
        return event_stream.parse_id(text, count)
    except Problem as problem:
        raise Problem("invalid_query", problem.detail, parameter="positions") from None


def _closing_event(error: Exception, request: Request) -> bytes:
    """Returns the event that reports why a stream ends."""
    if isinstance(error, EngineError):
        error = from_engine(error)
    if not isinstance(error, Problem):
        log.error("an event stream failed", exc_info=error)
        error = Problem("internal", "the server failed; its log has the error")
    document = error.document(request.id)
    return event_stream.problem_event(document if request.space is None else request.space.shown(document))


def visible_topic(request: Request, topic: str) -> str:
    """Returns the name of a topic as the caller says it."""
    return topic if request.space is None else request.space.visible(topic)


def _is_waited_out(problem: Problem, request: Request) -> bool:
    """Returns whether to wait the problem out: a browser's EventSource stops permanently at a 503 on reconnect."""
    if request.method == "HEAD" or not request.headers.get("Last-Event-ID"):
        return False
    return problem.code in (*TRANSIENT, "draining")


def _problem_of(parts: Sequence[Part]) -> Problem | None:
    """Returns the problem of the first partition that cannot be read, with its number."""
    for number, part in enumerate(parts):
        if part.problem is not None:
            return from_fields(part.problem, partition=number) if len(parts) > 1 else from_fields(part.problem)
    return None
