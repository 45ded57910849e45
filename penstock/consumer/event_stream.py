"""Follows a topic as an event stream (Server-Sent Events), over one connection that is resumed where it was lost.

For readers that have a signed URL, or few connections. Consumers (penstock/consumer/consumer.py) are faster: each
partition has a long poll of its own, from its leader. Invariant: `position` is after the last record handed out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Self

import orjson

from penstock.closing import AsyncClosing
from penstock.consumer.deserializers import Deserializers
from penstock.errors import ClientClosed, ClientError, ConnectionFailed, ProblemError
from penstock.records import Record, decode_line, with_deserializers
from penstock.transport.api import topic_path
from penstock.transport.attempts import Attempts
from penstock.transport.exchange import Query, Request, problem_from
from penstock.transport.transport import OpenAnswer, Transport

_SILENCE_S = 45.0  # a node sends a line every 15 s


class EventTerms(NamedTuple):
    topic: str
    start: str
    position: str
    filters: tuple[str, ...]
    url: str  # signed; it has its own query
    deserializers: Deserializers | None

    @property
    def query(self) -> Query:
        filters: Query = {"filter": self.filters} if self.filters else {}
        return {"from": self.start, **filters}


class EventStream(AsyncClosing):
    """Returns records; made by Client.events(): `async for record in client.events("rides")`."""

    def __init__(self, transport: Transport, attempts: Attempts, terms: EventTerms, out_of_range: str) -> None:
        self.position = terms.position
        self._transport, self._attempts, self._terms = transport, attempts, terms
        self._out_of_range = out_of_range
        self._answer: OpenAnswer | None = None
        self._text = b""
        self._blocks: deque[bytes] = deque()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<EventStream {self._terms.topic} {self.position}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        return await self.next()

    async def next(self) -> Record:
        """Waits for the next record; retries what may pass. Raises ClientClosed, ClientError."""
        failures = 0
        while True:
            if self._is_closed:
                raise ClientClosed("the event stream is closed")
            try:
                record = self._take(await self._next_event())
            except ClientError as error:
                self._disconnect()
                if self._is_closed:
                    raise ClientClosed("the event stream is closed") from error
                if not error.retryable:
                    raise
                failures += 1
                await asyncio.sleep(self._attempts.delay_s(error, failures))
                continue
            if record is not None:
                return record

    async def close(self) -> None:
        """Ends the connection; `position` stays."""
        self._is_closed = True
        self._disconnect()

    async def abort(self) -> None:
        await self.close()

    def _take(self, event: Mapping[str, bytes]) -> Record | None:
        kind, data = event.get("event"), event.get("data", b"")
        if kind == b"problem":
            document = orjson.loads(data)
            raise problem_from(document, document["status"], {})
        if kind == b"topic_recreated" and self._out_of_range == "fail":
            text = f"topic {self._terms.topic} was deleted and created again"
            raise ProblemError(
                text, status=409, code="topic_id_mismatch", retryable=False, no_side_effects=True
            )  # fmt: skip
        record = decode_line(data) if data and kind is None else None
        self.position = event["id"].decode() if "id" in event else self.position
        if record is not None:
            record.topic = self._terms.topic
            with_deserializers([record], self._terms.deserializers)
        return record

    async def _next_event(self) -> dict[str, bytes]:
        while not self._blocks:
            if self._answer is None:
                self._text = b""
                headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": self.position} if self.position else {})
                request = Request("GET", f"{topic_path(self._terms.topic)}/records", self._terms.query, None, headers)
                self._answer = await self._transport.open(request, _SILENCE_S, self._terms.url)
            piece = await self._answer.read()
            if not piece:
                raise ConnectionFailed("the event stream has ended", no_side_effects=True)
            *blocks, self._text = (self._text + piece).split(b"\n\n")
            self._blocks.extend(blocks)
        lines = [line.partition(b":") for line in self._blocks.popleft().split(b"\n")]
        return {name.decode(): value.removeprefix(b" ") for name, _, value in lines if name}

    def _disconnect(self) -> None:
        self._blocks.clear()
        if self._answer is not None:
            self._answer.close()
            self._answer = None
