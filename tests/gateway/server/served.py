"""A node in this process behind its own HTTP server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.connections.send_buffers import SendBuffers
from gateway.server.adapter import Adapter, problem_response
from gateway.server.body import BodyLimits
from gateway.server.head_cache import HeadCache
from gateway.wire.idle import Times
from gateway.wire.listening import listen
from gateway.wire.messages import WireLimits
from gateway.wire.server import HttpServer
from node.node import Node


@asynccontextmanager
async def served(node: Node, *, is_short: bool = True) -> AsyncIterator[tuple[tuple[str, int], HeadCache]]:
    """`is_short`: heads of hot routes are kept, and requests are taken without a task where they may be."""
    adapter = Adapter(node.server, BodyLimits(10.0, 1000, 1.0, 1 << 20), SendBuffers(1 << 20))
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
    server.open([listener])
    try:
        yield place, adapter.heads
    finally:
        await server.close(0.0)
