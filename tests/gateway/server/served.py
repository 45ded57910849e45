"""A node in this process behind its own HTTP server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.connections.send_buffers import SendBuffers
from gateway.server.adapter import Adapter, problem_response
from gateway.server.app import make_app
from gateway.server.body import BodyLimits
from gateway.server.short_path import ShortPath
from gateway.wire.idle import Times
from gateway.wire.listening import listen
from gateway.wire.messages import WireLimits
from gateway.wire.server import HttpServer
from node.node import Node


@asynccontextmanager
async def served(node: Node, *, is_short: bool) -> AsyncIterator[tuple[tuple[str, int], ShortPath]]:
    app = make_app(node.server)
    short = ShortPath(app)
    limits = BodyLimits(10.0, 1000, 1.0, 1 << 20)
    adapter = Adapter(app, short if is_short else None, limits, node.responses, SendBuffers(1 << 20))
    server = HttpServer(
        adapter,
        WireLimits(),
        Times(60.0, 60.0, 60.0, 60.0, 1000),
        100,
        time.time,
        lambda _: None,
        problem_response,
        adapter.take,
    )
    (listener,) = listen([("127.0.0.1", 0)])
    place = listener.getsockname()
    server.open([listener])
    try:
        yield place, short
    finally:
        await server.close(0.0)
