"""The receiver of a push subscription, on the clients' host: it takes every event of every request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
from aiohttp import web

from tests.checking.recreation_history import Consumed


@asynccontextmanager
async def receiving(consumed: Consumed, address: str) -> AsyncIterator[str]:
    """Receive meanwhile. Yields the URL for the subscription."""

    async def confirm(_: web.Request) -> web.Response:
        return web.Response(headers={"WebHook-Allowed-Origin": "*"})

    async def take(request: web.Request) -> web.Response:
        document = orjson.loads(await request.read())
        for event in document if isinstance(document, list) else [document]:
            consumed.take("", int(event["source"].rpartition("/")[2]), int(event["id"]), event["data"])
        return web.Response(status=204)

    app = web.Application()
    app.router.add_route("OPTIONS", "/hook", confirm)
    app.router.add_post("/hook", take)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, 0).start()
        yield f"http://{address}:{runner.addresses[0][1]}/hook"
    finally:
        await runner.cleanup()
