"""The harness's event-stream consumers behave as EventSource does, against a server with scripted answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.chaos.clients.streams import Streamed, Streams
from tests.checking.history import History


class Server:
    """Answers each connection with the next entry: an HTTP status, or events. After the last entry it stays silent."""

    def __init__(self) -> None:
        self.answers: list[int | list[bytes]] = []
        self.last_ids: list[str | None] = []
        self.silent = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.last_ids.append(request.headers.get("Last-Event-ID"))
        if not self.answers:
            self.silent.set()
            await asyncio.sleep(3600)
        entry = self.answers.pop(0)
        if isinstance(entry, int):
            return web.json_response({"code": "refused", "detail": "refused", "retryable": False}, status=entry)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in entry:
            await response.write(event)
        return response


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, str]]:
    made, app = Server(), web.Application()
    app.router.add_get("/{path:.*}", made.answer)
    async with TestServer(app) as running:
        yield made, str(running.make_url("")).rstrip("/")


def record(offset: int, event_id: int | None = None) -> bytes:
    shown = orjson.dumps({"offset": offset, "value": f"v{offset}"}).decode()
    return f"id: {offset + 1 if event_id is None else event_id}\ndata: {shown}\n\n".encode()


async def streamed(server: tuple[Server, str], *answers: int | list[bytes]) -> tuple[Streamed, History]:
    """Return the result of a stream of one partition against these answers."""
    made, url = server
    made.answers = list(answers)
    history = History()
    streams = Streams("t", 1, [url], history, Counter())
    of_topic, stream = streams.streamed
    del streams._streams[0]
    assert of_topic.events == 0
    async with asyncio.timeout(60), streams.running():
        while not stream.ended and not made.silent.is_set():
            await asyncio.sleep(0.01)
    return stream, history


async def test_a_stream_comes_back_where_it_was_and_misses_nothing(server):
    opening = b"retry: 1000\nid: 0\n\n"
    stream, history = await streamed(server, 503, [opening, record(0), b":\n\n", record(1)[:9]], [record(1), record(2)])
    assert (stream.ended, stream.wrong_ids, stream.events, stream.positions) == ("", [], 3, {0: 3})
    assert server[0].last_ids[:4] == [None, None, "1", "3"]
    given = [(poll.asked, poll.records) for poll in history.polled]
    assert [offset for asked, records in given for offset, _ in records] == [0, 1, 2]
    assert all(records[0][0] == asked for asked, records in given)


@pytest.mark.parametrize("status", [404, 416, 500, 503])
async def test_a_stream_that_is_refused_when_it_comes_back_stops_for_good(server, status):
    stream, _ = await streamed(server, [record(0)], status, [record(1)])
    assert stream.ended.startswith(f"{status} refused at 1 by node 1")
    assert stream.events == 1


async def test_a_final_problem_stops_a_stream_and_a_passing_one_does_not(server):
    passing = b'event: problem\ndata: {"code":"overloaded","retryable":true,"detail":""}\n\n'
    final = b'event: problem\ndata: {"code":"offset_above_high_watermark","retryable":false,"detail":"gone"}\n\n'
    stream, _ = await streamed(server, [record(0), passing], [record(1), final], [record(2)])
    assert stream.ended == "event offset_above_high_watermark at 2: gone"
    assert stream.events == 2


async def test_an_id_that_skips_a_record_is_noted(server):
    stream, _ = await streamed(server, [record(0), record(1, event_id=5)])
    assert stream.wrong_ids == ["got 5 instead of 2"]
