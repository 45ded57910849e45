"""Requests for tests of what takes one: the server makes them of what its parser delivers."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from multidict import CIMultiDict, CIMultiDictProxy

from gateway.http.request import Request, Route
from gateway.http.response import Response
from gateway.http.rights import Requirement, Right
from gateway.server.head_cache import NO_BODY


async def _answer(_: Request) -> Response:
    return Response()


def request_of(
    headers: Mapping[str, str] | None = None,
    *,
    query: str = "",
    names: Mapping[str, str] | None = None,
    need: Right | Requirement = Requirement.NONE,
    http: Any = None,
    content: Any = NO_BODY,
    content_length: int | None = None,
    connection: Any = None,
    method: str = "GET",
) -> Request:
    """Return a request to a route with this need."""
    return Request(
        http,
        Route(method, "/x", "test", need, _answer),
        method,
        "/x",
        query,
        names or {},
        CIMultiDictProxy(CIMultiDict(headers or {})),
        "1.1",
        content,
        content_length,
        connection or SimpleNamespace(client="127.0.0.1:1"),
    )
