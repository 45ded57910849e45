"""A front before a node: passes requests on, and does to single ones what a story has planned.

The node behind it is real, unlike that of tests/penstock/fake_node.py, and the fault is exact, unlike those of
tests/faults/proxy.py, which draws them. A plan is for the next request with its method and a part of its path.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any, NamedTuple

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, web

from tests.penstock.fake_node import problem

BODY_BYTES_MAX = 64 * 1024 * 1024
PIECES = 20
FREE = {"headers", "value", "config", "offsets", "topic_ids"}  # members whose names are data
HOP_BY_HOP = {"transfer-encoding", "content-length", "connection", "date"}


class Passed(NamedTuple):
    """What the node has answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def response(self, body: bytes | None = None, **headers: str) -> web.Response:
        kept = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        return web.Response(status=self.status, headers=kept | headers, body=self.body if body is None else body)


class Seen(NamedTuple):
    at: float
    method: str
    path: str
    headers: Mapping[str, str]


Act = Callable[[web.Request, Callable[[], Awaitable[Passed]]], Awaitable[web.StreamResponse]]


class Plan(NamedTuple):
    act: Act
    method: str
    path: str


class Front:
    def __init__(self, upstream: Callable[[], str]) -> None:
        self.seen: list[Seen] = []
        self.plans: list[Plan] = []
        self.always: Act | None = None
        self.url = ""
        self._upstream = upstream
        self._session: ClientSession

    def plan(self, act: Act, method: str = "POST", path: str = "/records", times: int = 1) -> None:
        self.plans += [Plan(act, method, path)] * times

    def asked(self, method: str, path: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == method and path in seen.path]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Front]:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        async with ClientSession(
            timeout=ClientTimeout(total=120), auto_decompress=False, cookie_jar=DummyCookieJar()
        ) as self._session:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            try:
                yield self
            finally:
                await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(Seen(monotonic(), request.method, request.path_qs, dict(request.headers)))
        body = await request.read()

        async def passed() -> Passed:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
            async with self._session.request(
                request.method, self._upstream() + request.raw_path, data=body, headers=headers, allow_redirects=False
            ) as answer:
                return Passed(answer.status, dict(answer.headers), await answer.read())

        for plan in self.plans:
            if plan.method == request.method and plan.path in request.path:
                self.plans.remove(plan)
                return await plan.act(request, passed)
        if request.headers.get("Accept") == "text/event-stream":
            return await self._stream(request)
        if self.always is not None:
            return await self.always(request, passed)
        return (await passed()).response()

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Passes an event stream on as it comes; cuts the connection when the node has gone."""
        response = web.StreamResponse()
        with suppress(ClientError, OSError):
            headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
            url = self._upstream() + request.raw_path
            async with self._session.get(url, headers=headers, timeout=ClientTimeout()) as answer:
                if answer.status != 200:
                    return Passed(answer.status, dict(answer.headers), await answer.read()).response()
                response.content_type = "text/event-stream"
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
        if request.transport is not None:
            request.transport.abort()
        return response


def answers(status: int, code: str, retry_after_s: int | None = None, **members: Any) -> Act:
    """The node never gets the request."""

    async def act(request: web.Request, passed: Any) -> web.StreamResponse:
        return problem(status, code, retry_after_s=retry_after_s, **members)

    return act


def page(status: int) -> Act:
    """A page of a proxy in between."""

    async def act(request: web.Request, passed: Any) -> web.StreamResponse:
        return web.Response(status=status, text="<html>a page</html>", content_type="text/html")

    return act


def redirects(url: str) -> Act:
    async def act(request: web.Request, passed: Any) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": url + request.path_qs})

    return act


async def loses(request: web.Request, passed: Callable[[], Awaitable[Passed]]) -> web.StreamResponse:
    """The node carries it out, and the connection is cut before the answer."""
    await passed()
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cuts(request: web.Request, passed: Callable[[], Awaitable[Passed]]) -> web.StreamResponse:
    """The connection is cut within the answer."""
    response, body = await _begin(request, await passed())
    await response.write(body[: len(body) // 2])
    assert request.transport is not None
    request.transport.close()
    return response


async def stalls(request: web.Request, passed: Callable[[], Awaitable[Passed]]) -> web.StreamResponse:
    """Half of the answer comes, and then silence until the client gives up."""
    response, body = await _begin(request, await passed())
    await response.write(body[: len(body) // 2])
    await asyncio.Event().wait()
    return response


async def drips(request: web.Request, passed: Callable[[], Awaitable[Passed]]) -> web.StreamResponse:
    """The answer comes in many small pieces, for a second."""
    response, body = await _begin(request, await passed())
    size = len(body) // PIECES + 1
    for start in range(0, len(body), size):
        await response.write(body[start : start + size])
        await asyncio.sleep(1 / PIECES)
    return response


async def is_newer(request: web.Request, passed: Callable[[], Awaitable[Passed]]) -> web.StreamResponse:
    """Each object of the answer has members that this release does not know."""
    answer = await passed()
    if "json" not in answer.headers.get("Content-Type", "") or not answer.body:
        return answer.response()
    if "ndjson" in answer.headers["Content-Type"]:
        rows = [orjson.dumps(_grown(orjson.loads(row))) + b"\n" for row in answer.body.splitlines()]
        return answer.response(b"".join(rows))
    return answer.response(orjson.dumps(_grown(orjson.loads(answer.body))))


def names_leader(url: str) -> Act:
    """The answer says that the leader is at another address."""

    async def act(request: web.Request, passed: Callable[[], Awaitable[Passed]]) -> web.StreamResponse:
        return (await passed()).response(**{"Penstock-Leader": url})

    return act


async def _begin(request: web.Request, answer: Passed) -> tuple[web.StreamResponse, bytes]:
    response = web.StreamResponse(status=answer.status, headers=dict(answer.response().headers))
    response.content_length = len(answer.body)
    await response.prepare(request)
    return response, answer.body


def _grown(value: Any) -> Any:
    """Headers and values are the records' own."""
    if isinstance(value, list):
        return [_grown(part) for part in value]
    if not isinstance(value, dict):
        return value
    grown = {name: part if name in FREE else _grown(part) for name, part in value.items()}
    return grown | {"later": {"x": [1]}}
