"""A node in this process behind its own HTTP server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.connections.send_buffers import SendBuffers
from gateway.http.body import BodyLimits
from gateway.http.request import Handled, Request
from gateway.http.response import Response
from gateway.server.adapter import Adapter, TakenRequest, problem_response
from gateway.wire.idle import Times
from gateway.wire.listening import Door, listen
from gateway.wire.messages import WireLimits
from gateway.wire.server import HttpServer
from node.node import Node


class Counts:
    """The requests of a server whose heads had passed the checks, and those that were answered without a task."""

    def __init__(self, adapter: Adapter) -> None:
        self.heads = adapter.heads
        self.requests = adapter.requests
        self._checked = self._sent_now = 0
        self._begin, self._send_now = adapter.requests.begin, adapter.send_now
        adapter.requests.begin = self._count_begun  # type: ignore[method-assign]
        adapter.send_now = self._count_sent  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return f"Counts(answered={self.answered}, without_task={self.without_task})"

    @property
    def answered(self) -> int:
        return self._checked

    @property
    def without_task(self) -> int:
        return self._sent_now

    def _count_begun(self, request: Request, *, is_checked: bool = False) -> Handled:
        self._checked += is_checked
        return self._begin(request, is_checked=is_checked)

    def _count_sent(self, request: TakenRequest, response: Response) -> None:
        self._sent_now += 1
        self._send_now(request, response)


@asynccontextmanager
async def served(node: Node, *, is_short: bool = True) -> AsyncIterator[tuple[tuple[str, int], Counts]]:
    """`is_short`: heads of hot routes are kept, and whole requests are taken without a task."""
    adapter = Adapter(node.server, BodyLimits(10.0, 1000, 1.0, 1 << 20), SendBuffers(1 << 20))
    counts = Counts(adapter)
    if not is_short:
        adapter.heads.find = adapter.heads.read  # type: ignore[method-assign]
    server = HttpServer(
        adapter,
        WireLimits(),
        Times(60.0, 60.0, 60.0, 60.0, 1000),
        100,
        time.time,
        lambda _: None,
        problem_response,
        adapter.take if is_short else None,
    )
    (listener,) = listen([("127.0.0.1", 0)])
    place = listener.getsockname()
    server.open([Door([listener])])
    try:
        yield place, counts
    finally:
        await server.close(0.0)
