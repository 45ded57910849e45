"""What reading a request and writing a response need, whatever the route."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from gateway.http.in_flight import InFlight
from gateway.http.offload import Offload


@dataclass(frozen=True, slots=True)
class HttpContext:
    """`count_response` takes the request and the bytes of a response that its client has yet to take.

    It raises Problem overloaded or too_many_requests if there is no room for the response.
    """

    request_body_bytes_max: int
    query_value_chars_max: int
    compress_bytes_min: int
    in_flight: InFlight
    offload: Offload
    count_response: Callable[[web.Request, int], None]


HTTP = web.AppKey("http", HttpContext)
