"""A compacted topic as a table over HTTP: GET /v1/topics/{topic}/table, as pages of JSON or as an event stream.

Reads piece by piece at the owners of the partitions, one partition after the other, so a read holds one piece, however
large the table. `positions` of a read that is not complete begin with `s`. The event stream goes on as that of the
topic (gateway/fetch/tail.py) once the table is complete.
"""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import orjson
from msgspec import Struct, convert

from gateway.connections.response_buffers import sendable_bytes
from gateway.fetch import event_stream
from gateway.fetch.context import FetchContext
from gateway.fetch.positions import is_of_topic
from gateway.fetch.reader import PartitionRead
from gateway.fetch.request import JSON, ValueForm
from gateway.fetch.tail import HEADERS, PIECE_BYTES, StartQuery, Tail, stream, visible_topic, write
from gateway.http.negotiation import SSE, choose_media_type, prefers
from gateway.http.problems import Problem
from gateway.http.query import Number, Text, Word, read_query
from gateway.http.request import Request
from gateway.http.response import Response, Stream
from gateway.http.response_compression import compress_response
from gateway.routing.leader_headers import check_leadership
from gateway.routing.partitions import other_topic
from gateway.tables.tables import READ_ROWS, PieceRead, TablePiece

_UNFINISHED = "s"
_POSITIONS = re.compile(r"s?([0-9A-Za-z_-]{1,8}\.)?[0-9]{1,19}(-[0-9]{1,19})*")


class TableQuery(Struct, frozen=True):
    """The query of a read of a table."""

    as_of: Annotated[str | None, Text()] = None
    positions: Annotated[str | None, Text()] = None
    wait_ms: Annotated[int, Number(0, 60_000)] = 0
    max_bytes: Annotated[int | None, Number(1, 2**31 - 1)] = None
    follow: Annotated[str, Word(("true", "false"))] = "true"
    value: ValueForm = None


class Start(NamedTuple):
    """The first offset of each partition, and whether they are those of a reader that has earlier rows.

    `is_other`: the reader has rows of a deleted topic of this name.
    """

    offsets: list[int]
    is_resumed: bool
    is_other: bool = False


async def read_table(request: Request, context: FetchContext) -> Response:
    """GET /v1/topics/{topic}/table. Raises Problem, EngineError."""
    name = request.names["topic"]
    query = read_query(request, TableQuery)
    accept = request.headers.get("Accept", "")
    is_stream = prefers(accept, SSE, (JSON,))
    if not is_stream:
        choose_media_type(accept, (JSON,))
    start = await _find_start(request, context, name, query, is_stream=is_stream)
    await check_leadership(request, context.router, [(name, number) for number in range(len(start.offsets))])
    read = _TableRead(context, name, query, start)
    if is_stream:
        return await _send_events(request, context, read, is_other=start.is_other)
    return await _send_page(request, context, read)


class _TableRead:
    """One read: its partitions from the first to the last, each up to its high watermark."""

    def __init__(self, context: FetchContext, topic: str, query: TableQuery, start: Start) -> None:
        self.topic = topic
        self.topic_id = context.topics.topic(topic).record.topic_id
        self.query = query
        self.positions = start.offsets
        self.is_complete = False
        self._context = context
        self._start = start
        self._as_of = [0] * len(start.offsets) if query.as_of is None else _offsets(query.as_of, len(start.offsets))
        self._number = 0
        self._end: int | None = None
        self._is_last_round = False

    @property
    def text(self) -> str:
        """The positions for a reader that continues."""
        return ("" if self.is_complete else _UNFINISHED) + event_stream.id_of(self.topic_id, self.positions)

    async def next(self, max_bytes: int) -> tuple[int, bytes]:
        """Returns the partition and the rows of the next piece, one a line. Raises Problem, EngineError."""
        number, end = self._number, self._end
        piece = TablePiece(
            self.positions[number],
            end,
            max_bytes,
            self.query.value,
            self._start.is_resumed or self._is_last_round,
            self._as_of[number],
            self.query.wait_ms,
        )
        page, rows = await self._context.router.call(READ_ROWS, self.topic, number, piece, wait_ms=self.query.wait_ms)
        self._advance(page if isinstance(page, PieceRead) else convert(page, PieceRead))
        return number, bytes(rows)

    def _advance(self, page: PieceRead) -> None:
        self.positions[self._number] = page.next_offset
        self._end = page.end
        if page.next_offset < page.end:
            return
        if not self._is_last_round and page.high_watermark > page.end:
            # compaction may have removed rows below the end for later records, which one more round reads
            self._is_last_round, self._end = True, None
            return
        self._number, self._end, self._is_last_round = self._number + 1, None, False
        self.is_complete = self._number == len(self.positions)


async def _send_page(request: Request, context: FetchContext, read: _TableRead) -> Response:
    settings = context.settings
    max_bytes = min(read.query.max_bytes or settings.fetch_bytes_default, settings.fetch_bytes_max)
    left = sendable_bytes(request, max_bytes)
    rows: list[bytes] = []
    while left > 0 and not read.is_complete:
        before = list(read.positions)
        number, lines = await read.next(max(1, min(left, PIECE_BYTES)))
        extra = b'{"partition":%d,' % number
        rows += [extra + line[1:] for line in lines.split(b"\n")[:-1]]
        if read.positions != before:
            left -= max(len(lines), PIECE_BYTES // 4)  # a part of the log without rows takes time too
    topic = visible_topic(request, read.topic)
    head = orjson.dumps({"topic": topic, "positions": read.text, "complete": read.is_complete})
    body = b"".join((head[:-1], b',"rows":[', b",".join(rows), b"]}"))
    headers = {"Content-Type": JSON, "Cache-Control": "no-store"}
    return await compress_response(request, Response(body, headers))


async def _send_events(request: Request, context: FetchContext, read: _TableRead, *, is_other: bool) -> Response:
    with context.long_polls.waiting(len(read.positions)):
        number, rows = await read.next(PIECE_BYTES)  # its problem is an answer of its own
        if context.lifecycle.is_refusing:
            raise Problem("draining", "the node is stopping")
        if request.method == "HEAD":
            return Response(headers=dict(HEADERS))
        answer = request.begin_stream(HEADERS | request.answer_headers)

        async def run(request: Request, answer: Stream) -> None:
            nonlocal number, rows
            await write(context, answer, event_stream.FAREWELL)
            if is_other:
                await write(context, answer, event_stream.recreated(visible_topic(request, read.topic), read.topic_id))
            while True:
                with context.stream_budget.hold(2 * len(rows)):
                    events, rows = _events(number, rows, read.text), b""
                    await write(context, answer, events)
                if read.is_complete:
                    break
                if context.lifecycle.is_draining:
                    return
                number, rows = await read.next(PIECE_BYTES)
            document = {"topic": visible_topic(request, read.topic), "positions": read.text}
            await write(context, answer, b"event: table\ndata: %b\n\n" % orjson.dumps(document))
            if read.query.follow == "true":
                await _tail(context, read).run(request, answer)

        await stream(context, request, answer, run)
    return Response(is_streamed=True)


def _tail(context: FetchContext, read: _TableRead) -> Tail:
    record = context.topics.topic(read.topic).record
    entries = [
        PartitionRead(read.topic, record.topic_id, number, offset) for number, offset in enumerate(read.positions)
    ]
    return Tail(context, entries, StartQuery(value=read.query.value), names_partition=True)


def _events(number: int, rows: bytes, position: str) -> bytes:
    """Returns an event for each row, and then the position: a row of a piece that is cut off comes again."""
    start = b'data: {"partition":%d,' % number
    events = [start + line[1:] + b"\n\n" for line in rows.split(b"\n")[:-1]]
    return b"".join([*events, f"id: {position}\n\n".encode()])


async def _find_start(
    request: Request, context: FetchContext, name: str, query: TableQuery, *, is_stream: bool
) -> Start:
    """Returns where to begin: at the positions of the reader, else at the first records."""
    event_id = request.headers.get("Last-Event-ID") if is_stream else None
    text = event_id or query.positions
    if text is not None and not _POSITIONS.fullmatch(text):
        detail = "the positions are not those of an answer or an event of this table"
        if event_id:
            raise Problem("invalid_header", detail)
        raise Problem("invalid_query", detail, parameter="positions")
    given = [text for text in (text, query.as_of) if text is not None]
    for position_id in given:
        if not await is_of_topic(context, name, position_id.removeprefix(_UNFINISHED)):
            present = context.topics.topic(name).record
            if not is_stream or position_id is query.as_of:
                raise other_topic(name, present.topic_id)
            return Start([0] * present.partitions, is_resumed=False, is_other=True)
    partitions = context.topics.topic(name).record.partitions
    if (count := max(map(event_stream.count_of_id, given), default=1)) > partitions:
        await context.topics.refresh(name, count)
    count = context.topics.topic(name).record.partitions
    if count > context.settings.fetch_partitions_max:
        text = f"the topic has {count} partitions, too many for one read"
        raise Problem("not_acceptable", text, limit=context.settings.fetch_partitions_max)
    if text is None:
        return Start([0] * count, is_resumed=False)
    return Start(_offsets(text.removeprefix(_UNFINISHED), count), is_resumed=True)


def _offsets(text: str, count: int) -> list[int]:
    """Returns the offset of each partition; 0 for those that the topic has gained. Raises Problem invalid_query."""
    try:
        offsets = event_stream.parse_id(text, count)
    except Problem as problem:
        raise Problem("invalid_query", problem.detail, parameter="positions") from None
    return offsets + [0] * (count - len(offsets))
