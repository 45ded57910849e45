"""Cached routes match aiohttp's router, and only successful ones are cached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from gateway.server import route_cache as known_routes
from gateway.server.route_cache import RouteCache

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
def around() -> list[str]:
    """Return the handlers' names, in the order in which the middleware saw them."""
    return []


@pytest.fixture
def app(around: list[str]) -> web.Application:
    async def read(request: web.Request) -> web.Response:
        assert request.app is app
        return web.Response(text=f"read {request.match_info['topic']}")

    async def write(request: web.Request) -> web.Response:
        return web.Response(text=f"write {request.match_info['topic']}", status=int(request.query.get("status", 200)))

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        around.append(handler.__name__)
        try:
            return await handler(request)
        except web.HTTPException as error:
            return web.Response(status=error.status)

    app = web.Application(middlewares=[middleware])
    app.router.add_get("/t/{topic}", read)
    app.router.add_post("/t/{topic}", write)
    app.freeze()
    return app


async def ask(routes: RouteCache, app: web.Application, method: str, path: str, query: str = "") -> web.Response:
    request = make_mocked_request(method, path + query, app=app)
    response = await routes.handle(request, method, path)
    assert isinstance(response, web.Response)
    return response


async def test_a_path_asked_again_is_answered_as_at_first(app: web.Application, around: list[str]) -> None:
    routes = RouteCache(app)
    for _ in range(3):
        assert (await ask(routes, app, "GET", "/t/a")).text == "read a"
        assert (await ask(routes, app, "GET", "/t/b")).text == "read b"
        assert (await ask(routes, app, "POST", "/t/a")).text == "write a"
    assert repr(routes) == "RouteCache(3)"
    assert around == ["read", "read", "write"] * 3


async def test_the_router_is_asked_once_for_a_path(app: web.Application, monkeypatch: pytest.MonkeyPatch) -> None:
    routes = RouteCache(app)
    await ask(routes, app, "GET", "/t/a")

    async def refuse(request: web.Request) -> web.StreamResponse:
        raise AssertionError("looked up twice")

    monkeypatch.setattr(app, "_handle", refuse)
    assert (await ask(routes, app, "GET", "/t/a")).text == "read a"


async def test_what_failed_or_leads_nowhere_is_not_remembered(app: web.Application) -> None:
    routes = RouteCache(app)
    assert (await ask(routes, app, "GET", "/nowhere")).status == 404
    assert (await ask(routes, app, "DELETE", "/t/a")).status == 405
    assert (await ask(routes, app, "POST", "/t/a", "?status=404")).status == 404
    assert repr(routes) == "RouteCache(0)"


async def test_only_so_many_are_remembered(app: web.Application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_routes, "ROUTES_MAX", 4)
    routes = RouteCache(app)
    for number in range(20):
        assert (await ask(routes, app, "GET", f"/t/{number}")).text == f"read {number}"
        assert len(routes._routes) <= 4
