"""A reader of event streams for tests, over HTTP/1.1 and HTTP/2: parses events as the standard says.

It is independent of Penstock. It is not a client for users: it never reconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import h2.exceptions
import httpx
import orjson

PROMPT_S = 45.0


@dataclass
class Event:
    id: str
    kind: str
    data: str

    @property
    def positions(self) -> str:
        """The offsets of its id, without the beginning of the topic's id."""
        return self.id.partition(".")[2]

    @property
    def json(self) -> Any:
        return orjson.loads(self.data)


class EventSource:
    """One open stream. `last_id` is the id that a browser would send when it reconnects."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.http_version = response.http_version
        self.last_id = ""
        self.retry_ms: int | None = None
        self.comments = 0
        self._response = response
        self._lines = _lines(response)

    async def next(self) -> Event | None:
        """Return the next event that has data; None at the end of the stream."""
        async with asyncio.timeout(PROMPT_S):
            kind, data = "message", []
            async for line in self._lines:
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if not line:
                    if data:
                        return Event(self.last_id, kind, "\n".join(data))
                    kind = "message"
                elif not name:
                    self.comments += 1
                elif name == "id":
                    self.last_id = value
                elif name == "retry":
                    self.retry_ms = int(value)
                else:
                    assert name in ("event", "data"), line
                    kind, data = (value, data) if name == "event" else (kind, [*data, value])
        return None

    async def take(self, count: int) -> list[Event]:
        events = [await self.next() for _ in range(count)]
        assert None not in events, "the stream ended"
        return [event for event in events if event is not None]

    async def problem(self) -> Any:
        """Return the document of a rejection, or of the event that ends the stream."""
        if self.status != 200:
            return orjson.loads(await self._response.aread())
        event = await self.next()
        assert event is not None
        assert event.kind == "problem", event
        assert await self.next() is None, "a stream ends with its problem"
        return event.json


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Yield the lines of a stream, split at newlines only: httpx also splits at U+2028. An unterminated line is
    dropped.
    """
    rest = b""
    try:
        async for piece in response.aiter_raw():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line.decode()
    except h2.exceptions.ProtocolError as error:
        if "RECV_PING in state ConnectionState.CLOSED" not in str(error):  # h2 rejects frames after a GOAWAY
            raise


@asynccontextmanager
async def event_source(
    port: int, path: str, headers: Mapping[str, str] | None = None, *, http2: bool = False
) -> AsyncIterator[EventSource]:
    given = {"Accept": "text/event-stream", **(headers or {})}
    async with (
        httpx.AsyncClient(http1=not http2, http2=http2, timeout=None) as client,
        client.stream("GET", f"http://127.0.0.1:{port}{path}", headers=given) as response,
    ):
        yield EventSource(response)
