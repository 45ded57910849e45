"""Live tails: a partition, or all of a topic, as an event stream that goes on until its client leaves.

What is asked for, and the loop that reads and writes. The bytes are event_stream.py's, reading and waiting many.py's.
What must hold: (1) whatever is wrong at the beginning is a problem document, later an event `problem` and the end; who
comes back for a stream sits out what will pass; (2) what is read is written before more is read, and a client that
takes nothing for `stream_stall_ms` is let go, so a stream holds one piece and no more, and all of them together what
there is room for; (3) a stream counts as one long poll, and ends at once when the node drains;
(4) a topic that grows loses nobody a record: its streams end, and who resumes has the new partitions from their start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from engine.errors import EngineError
from gateway.connections.send_buffers import ClientStalled
from gateway.fetch import event_stream
from gateway.fetch.context import FETCH, FetchContext
from gateway.fetch.many_reads import Limits, Part, Wanted
from gateway.fetch.multi_fetch import MOVING, MultiFetch
from gateway.http.negotiation import SSE, by_preference
from gateway.http.problems import RETRY_AFTER_S, Problem, from_engine
from gateway.http.query import Number, Rules, Text, Word, path_partition, read_query
from gateway.http.response_headers import answer_headers
from gateway.http.times import parse_timestamp
from gateway.routing.leader_headers import demand_direct, read_leader_epoch

log = logging.getLogger("penstock.gateway")

PIECE_BYTES = 64 * 1024  # stored bytes read at once: 10,000 streams that all stall hold so much each, and no more
WRITE_BYTES = 64 * 1024  # written at once: a piece may be one large batch, and a client may take nothing of it
PAUSE_S = 0.25  # before looking again at what was said to be there and is not, as while a shard restarts
NO_ROOM_PAUSE_S = 0.5  # before another look whether the clients of other streams have taken enough
PASSING = (*MOVING, "overloaded", "too_many_open_files", "store_unavailable")  # problems that a stream sits out
PASSING_STATUSES = (429, 503, 504)  # before it has begun
HEADERS = {"Content-Type": SSE, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}

_START: Rules = {
    "from": Word(None, ("earliest", "latest")),
    "timestamp": Text(None, 64),
    "value": Word(None, ("json", "text", "base64")),
}
PARTITION_QUERY: Rules = {"offset": Number(None, 0, 2**63 - 1), **_START}
QUERY: Rules = {"positions": Text(None), **_START}  # ids that are longer fit a header


async def tail_partition(request: web.Request) -> web.StreamResponse:
    """GET /v1/topics/{topic}/partitions/{partition}/records as `text/event-stream`"""
    context, name, number = request.app[FETCH], request.match_info["topic"], path_partition(request)
    topic_id, epoch = context.partitions.topic_id(name, number), read_leader_epoch(request)
    query = read_query(request, PARTITION_QUERY)
    await demand_direct(request, context.router, [(name, number)])
    given = None if query["offset"] is None else [query["offset"]]
    starts = await _starts(request, query, given, name, [number])
    wanted = [Wanted(name, topic_id, number, starts[0], epoch)]
    return await _Tail(context, wanted, query["value"], names_partition=False).answer(request)


async def tail_topic(request: web.Request) -> web.StreamResponse:
    """GET /v1/topics/{topic}/records"""
    context, name = request.app[FETCH], request.match_info["topic"]
    known = context.topics.topic(name).record.partitions
    query = read_query(request, QUERY)
    positions = request.headers.get("Last-Event-ID") or query["positions"] or ""
    if (count := event_stream.count_of_id(positions)) > known:
        await context.topics.look_for(name, count)
    record = context.topics.topic(name).record
    if SSE not in by_preference(request.headers.get("Accept", "")):
        text = f"a whole topic is read as {SSE}: say so in Accept; or fetch its partitions one by one"
        raise Problem("not_acceptable", text)
    if record.partitions > context.settings.fetch_partitions_max:
        text = f"the topic has {record.partitions} partitions, too many for one stream: tail them one by one"
        raise Problem("not_acceptable", text, limit=context.settings.fetch_partitions_max)
    numbers = range(record.partitions)
    await demand_direct(request, context.router, [(name, number) for number in numbers])
    given = None if query["positions"] is None else _query_positions(query["positions"], record.partitions)
    starts = await _starts(request, query, given, name, numbers)
    wanted = [Wanted(name, record.topic_id, number, start) for number, start in zip(numbers, starts, strict=True)]
    return await _Tail(context, wanted, query["value"], names_partition=True).answer(request)


def come_back(request: web.Request, problem: Problem) -> web.Response | None:
    """To a stream that resumes and cannot begin now: one that ends at once with when to come back. None for others.

    A browser's EventSource that is answered with a status other than 200 gives up for good. It waits for as long as
    `Retry-After` says and up to as long again, so that streams refused together do not come back together.
    """
    is_resuming = request.method == "GET" and request.headers.get("Last-Event-ID")
    if not is_resuming or problem.status not in PASSING_STATUSES:
        return None
    if SSE not in by_preference(request.headers.get("Accept", "")):
        return None
    wait_ms = round(1000 * request.app[FETCH].budgets.jittered(2 * RETRY_AFTER_S))
    return web.Response(body=b": %b\nretry: %d\n\n" % (problem.code.encode(), wait_ms), headers=HEADERS)


class _Tail:
    """One stream: where it stands in each of its partitions."""

    def __init__(
        self, context: FetchContext, wanted: Sequence[Wanted], value: str | None, *, names_partition: bool
    ) -> None:
        self._context = context
        self._many = MultiFetch(context, wanted)
        self._positions = [one.offset for one in wanted]
        self._value = value
        self._names_partition = names_partition
        self._parts: list[Part] = []  # what was read and is not rendered yet; nobody else may hold it

    async def answer(self, request: web.Request) -> web.StreamResponse:
        started = time.perf_counter()
        context = self._context
        with context.long_polls.waiting(len(self._positions)):
            self._parts = await self._many.read_patiently(self._limits())
            problem = _problem_of(self._parts)
            if (
                problem is None and context.lifecycle.is_refusing
            ):  # in a farewell it begins, and ends at once with when to come back
                problem = Problem("draining", "the node is stopping")
            if problem is not None and not _is_sat_out(problem, request):
                raise problem
            if request.method == "HEAD":
                return web.Response(headers=HEADERS)
            response = web.StreamResponse(headers=HEADERS | answer_headers(request))
            await response.prepare(request)
            context.metrics.answered("tail", response.status, time.perf_counter() - started)
            context.metrics.event_streams.inc()
            try:
                await self._write(response, event_stream.opening(self._positions))
                await self._run(request, response)
            except (ConnectionResetError, asyncio.CancelledError):
                raise  # nobody is there any more
            except Exception as error:
                await self._write(response, _last_words(error, request))
            finally:
                context.metrics.event_streams.dec()
        return response

    async def _run(self, request: web.Request, response: web.StreamResponse) -> None:
        """Until the node drains or something is wrong; who leaves cancels it. Raises why it must end."""
        context, loop = self._context, asyncio.get_running_loop()
        heartbeat_s = context.settings.stream_heartbeat_ms / 1000
        written_at, woken_early = loop.time(), False
        checked_at = written_at
        while True:
            size_bytes = await self._room()
            if loop.time() >= checked_at + heartbeat_s:  # a token may have been withdrawn since
                context.access.check(request, "tail_topic")
                checked_at = loop.time()
            with context.stream_budget.hold(size_bytes):
                piece, problem = await self._piece()
                has_piece = bool(piece)
                if has_piece:
                    await self._write(response, piece)
                    written_at, woken_early = loop.time(), False
                    piece = b""  # or it would be kept while the next one is read
            if problem is not None and problem.code not in PASSING:
                raise problem
            if context.lifecycle.is_draining or self._has_grown():
                await self._write(response, event_stream.FAREWELL)
                return
            if not has_piece:
                if problem is not None or woken_early:
                    await asyncio.sleep(PAUSE_S)
                due_s = written_at + heartbeat_s - loop.time()
                if due_s <= 0:
                    await self._write(response, event_stream.HEARTBEAT)
                    written_at, due_s = loop.time(), heartbeat_s
                await self._many.wait_for_any(due_s)
                woken_early = loop.time() < written_at + heartbeat_s
            await self._read()

    def _has_grown(self) -> bool:
        """Whether the topic has partitions that this stream does not know. Seen at the next event or heartbeat."""
        topic = self._context.topics.get(self._many.wanted[0].topic) if self._names_partition else None
        return topic is not None and topic.record.partitions > len(self._positions)

    async def _read(self) -> None:
        self._parts = await self._many.read(self._limits())

    def _limits(self) -> Limits:
        return Limits(PIECE_BYTES, None, self._value, next(self._context.turns), as_lines=True)

    async def _room(self) -> int:
        """How much memory what was read takes, once there is room for it: what finds none is let go and read again."""
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
        return 2 * sum(len(part.body) for part in self._parts)  # as it was read, and as events

    async def _piece(self) -> tuple[bytes, Problem | None]:
        """The events of what was read, and what is wrong. What was read is let go."""
        parts, self._parts = self._parts, []
        size_bytes = 4 * sum(len(part.body) for part in parts)
        return await self._context.offload.by_size(size_bytes, lambda: self._rendered(parts)), _problem_of(parts)

    def _rendered(self, parts: Sequence[Part]) -> bytes:
        """The events of what was read; the stream then stands behind them."""
        pieces = []
        for index, part in enumerate(parts):
            if part.problem is not None or part.next_offset == self._positions[index]:
                continue
            if part.line_ends:
                number = self._many.wanted[index].partition
                extra = b'"partition":%d,' % number if self._names_partition else b""
                pieces.append(event_stream.events(part.body, part.line_ends, self._positions, index, extra))
            self._positions[index] = part.next_offset
            self._many.move_on(index, part.next_offset)
            if not part.line_ends or part.line_ends[-1] != part.next_offset:
                pieces.append(event_stream.position(self._positions))
        return b"".join(pieces)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        """Raises ClientStalled when the client takes nothing for too long."""
        stall_s = self._context.settings.stream_stall_ms / 1000
        view = memoryview(data)
        for start in range(0, len(data), WRITE_BYTES):
            try:
                async with asyncio.timeout(stall_s):
                    await response.write(bytes(view[start : start + WRITE_BYTES]))
            except TimeoutError:
                raise ClientStalled(f"the client has taken nothing for {stall_s:g} s") from None


async def _starts(
    request: web.Request, query: dict[str, Any], given: list[int] | None, topic: str, numbers: Sequence[int]
) -> list[int]:
    """The first offset wanted of each partition: after the last event that the client had, or as the query says."""
    context = request.app[FETCH]
    event_id = request.headers.get("Last-Event-ID")
    if event_id:
        return await _with_new_ones(context, event_stream.parse_id(event_id, len(numbers)), topic, numbers)
    if sum(way is not None for way in (given, query["from"], query["timestamp"])) > 1:
        raise Problem("invalid_query", "the query says in two ways where to start", parameter="from")
    if given is not None:
        return await _with_new_ones(context, given, topic, numbers)
    timestamp = None if query["timestamp"] is None else parse_timestamp(query["timestamp"])
    asked = (context.router.call("find_offsets", topic, number, timestamp) for number in numbers)
    return [_start(found, query) for found, _ in await asyncio.gather(*asked)]


async def _with_new_ones(context: FetchContext, positions: list[int], topic: str, numbers: Sequence[int]) -> list[int]:
    """Partitions that the topic has gained since are read from their beginning."""
    asked = (context.router.call("find_offsets", topic, number, None) for number in numbers[len(positions) :])
    return positions + [int(found["log_start"]) for found, _ in await asyncio.gather(*asked)]


def _start(found: dict[str, Any], query: dict[str, Any]) -> int:
    if query["timestamp"] is not None and found["offset"] is not None:
        return int(found["offset"])
    return int(found["log_start" if query["from"] == "earliest" else "high_watermark"])


def _query_positions(text: str, count: int) -> list[int]:
    try:
        return event_stream.parse_id(text, count)
    except Problem as problem:
        raise Problem("invalid_query", problem.detail, parameter="positions") from None


def _last_words(error: Exception, request: web.Request) -> bytes:
    """Why a stream ends that has begun."""
    if isinstance(error, EngineError):
        error = from_engine(error)
    if not isinstance(error, Problem):
        log.error("an event stream failed", exc_info=error)
        error = Problem("internal", "an error in the server; it has been logged")
    return event_stream.problem_event(error.document(answer_headers(request)["Penstock-Request-Id"]))


def _is_sat_out(problem: Problem, request: web.Request) -> bool:
    """A browser's EventSource that comes back and is told 503 gives up for good, so what passes is no reason then."""
    if request.method == "HEAD" or not request.headers.get("Last-Event-ID"):
        return False
    return problem.code in (*PASSING, "draining")


def _problem_of(parts: Sequence[Part]) -> Problem | None:
    """What is wrong with the first partition that cannot be read; its number is in it."""
    for number, part in enumerate(parts):
        if part.problem is not None:
            code, detail, members = part.problem
            return Problem(code, detail, **{"partition": number, **members} if len(parts) > 1 else members)
    return None
