"""Requests for tests of what takes one: the server makes them of what its parser delivers."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from multidict import CIMultiDict, CIMultiDictProxy

from gateway.http.request import Request, Route
from gateway.http.response import Response
from gateway.http.rights import OPEN, Need
from gateway.wire.messages import RequestHead


def _answer(_: Request, __: object) -> Response:
    return Response()


def request_of(
    headers: Mapping[str, str] | None = None,
    *,
    query: str = "",
    names: Mapping[str, str] | None = None,
    need: Need = OPEN,
    http: Any = None,
    content: Any = None,
    content_length: int | None = None,
    connection: Any = None,
    method: str = "GET",
) -> Request:
    """Return a request to a route with this need."""
    head = RequestHead("1.1", method, "/x", query, "", ())
    head.content_length = content_length
    return Request(
        http,
        head,
        Route(method, "/x", "test", need, _answer),
        names or {},
        CIMultiDictProxy(CIMultiDict(headers or {})),
        connection or SimpleNamespace(client="127.0.0.1:1", known_caller=None, listener=None, tls=None, use_owner=str),
        b"" if content is None else None,
        content,
    )
