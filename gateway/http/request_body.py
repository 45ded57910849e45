"""Reads a request's body whole, within limits, and undoes its Content-Encoding.

Bounds hold for what arrives and for what it unpacks to: a bomb is stopped at the limit, not after it, and not in the
loop.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from engine.format.decompression import FIRST_ROOM_BYTES, Broken, DoesNotFit, unpack
from gateway.http.context import HTTP
from gateway.http.in_flight import InFlight
from gateway.http.problems import Problem

_PACKED_IN_LOOP_MAX = 64 * 1024  # 3,000 gzip members that are all empty take 14 ms


async def read_body(request: web.Request, limit: int, when_there: Callable[[], None] | None = None) -> bytes:
    """The body, decoded; `when_there` hears of it as it came, before it is decoded.

    Raises Problem: body_too_large, unsupported_encoding, invalid_body.
    """
    announced = request.content_length
    if announced is not None and announced > limit:
        raise _too_large(limit)
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", "gzip", "zstd"):
        text = f"Content-Encoding is {encoding!r}; give gzip, zstd or none"
        raise Problem("unsupported_encoding", text, headers={"Accept-Encoding": "gzip, zstd"})
    in_flight = request.app[HTTP].in_flight
    body = await _read_up_to(request, limit, in_flight)
    if when_there is not None:
        when_there()
    if encoding == "identity" or not body:
        return body
    try:
        unpacked = await _unpacked(request, encoding, body, limit)
    except DoesNotFit:
        raise _too_large(limit) from None
    except Broken as error:
        raise Problem("invalid_body", f"the body is not what Content-Encoding says: {error}") from None
    in_flight.hold(request, len(unpacked))
    return unpacked


async def _unpacked(request: web.Request, encoding: str, body: bytes, limit: int) -> bytes:
    """Here what is quick; how long a body will be is known only when it is there."""
    if len(body) <= _PACKED_IN_LOOP_MAX:
        try:
            return bytes(unpack(encoding, body, min(limit, FIRST_ROOM_BYTES)))
        except DoesNotFit:
            if limit <= FIRST_ROOM_BYTES:
                raise
    return await request.app[HTTP].offload.in_thread(lambda: bytes(unpack(encoding, body, limit)))


async def _read_up_to(request: web.Request, limit: int, in_flight: InFlight) -> bytes:
    first = await request.content.readany()
    in_flight.hold(request, len(first))
    size, chunks = len(first), [first]
    while chunk := await request.content.readany():
        in_flight.hold(request, len(chunk))
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    if size > limit:
        raise _too_large(limit)
    return first if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit: int) -> Problem:
    return Problem("body_too_large", f"a body may have {limit} bytes, unpacked too", limit=limit)
