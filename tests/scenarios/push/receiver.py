"""A receiver of webhooks: keeps what it takes, checks signatures by the specification, answers as a test wants."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8G"

Answer = Callable[[list[dict[str, Any]]], web.Response | None]


class Receiver:
    """An HTTP server on loopback. `answer` may reject; None takes the events."""

    def __init__(self, secrets: list[str]) -> None:
        self.secrets = secrets
        self.taken: list[dict[str, Any]] = []
        self.requests: list[tuple[str, int]] = []
        self.traceparents: list[str | None] = []
        self.answer: Answer = lambda events: None
        self.allowed_origin: str | None = "*"
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        app = web.Application()
        app.router.add_route("OPTIONS", "/hook", self._options)
        app.router.add_route("POST", "/hook", self._post)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}/hook"

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _options(self, request: web.Request) -> web.Response:
        assert request.headers["WebHook-Request-Origin"]
        if self.allowed_origin is None:
            return web.Response()
        return web.Response(headers={"WebHook-Allowed-Origin": self.allowed_origin})

    async def _post(self, request: web.Request) -> web.Response:
        body = await request.read()
        name, stamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        signatures = set(request.headers["webhook-signature"].split(" "))
        assert signatures == {self._signature(secret, name, stamp, body) for secret in self.secrets}
        self.traceparents.append(request.headers.get("traceparent"))
        document = orjson.loads(body)
        events = document if isinstance(document, list) else [document]
        answer = self.answer(events)
        self.requests.append((name, 200 if answer is None else answer.status))
        if answer is not None:
            return answer
        self.taken += events
        return web.Response()

    def _signature(self, secret: str, name: str, stamp: str, body: bytes) -> str:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        digest = hmac.new(key, f"{name}.{stamp}.".encode() + body, hashlib.sha256).digest()
        return "v1," + base64.b64encode(digest).decode()

    def values(self) -> list[Any]:
        return [event.get("data") for event in self.taken]
