"""The dependencies of reading a request and writing a response, for every route."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from gateway.http.messages import Request
from gateway.http.offload import Offload
from gateway.http.request_body import RequestBodies


@dataclass(frozen=True, slots=True)
class HttpContext:
    """`count_response` takes the request and the bytes of a response that its client has yet to take.

    It raises Problem overloaded or too_many_requests if there is no room for the response.
    """

    request_body_bytes_max: int
    query_value_chars_max: int
    compress_bytes_min: int
    bodies: RequestBodies
    offload: Offload
    count_response: Callable[[Request, int], None]


HTTP = web.AppKey("http", HttpContext)

# Headers of every answer to a request, whatever its handler. They are set before the handler runs, because a stream
# sends its headers long before it is over.
ANSWER_HEADERS = web.RequestKey("answer_headers", dict[str, str])
