"""Reads a request's body whole, within limits, and undoes its Content-Encoding.

Bounds hold for what arrives and for what it unpacks to: a bomb is stopped at the limit, not after it.
"""

from __future__ import annotations

import io
import zlib

import zstandard
from aiohttp import web

from gateway.problems import Problem

_GZIP_WINDOW = 16 + zlib.MAX_WBITS


async def read_body(request: web.BaseRequest, limit: int) -> bytes:
    """The body, decoded. Raises Problem: body_too_large, unsupported_encoding, invalid_body."""
    announced = request.content_length
    if announced is not None and announced > limit:
        raise _too_large(limit)
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", "gzip", "zstd"):
        text = f"Content-Encoding is {encoding!r}; give gzip, zstd or none"
        raise Problem("unsupported_encoding", text, headers={"Accept-Encoding": "gzip, zstd"})
    body = await _read_up_to(request, limit)
    match encoding:
        case "gzip":
            return _gunzip(body, limit)
        case "zstd":
            return _unzstd(body, limit)
        case _:
            return body


async def _read_up_to(request: web.BaseRequest, limit: int) -> bytes:
    first = await request.content.readany()
    size, chunks = len(first), [first]
    while chunk := await request.content.readany():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    if size > limit:
        raise _too_large(limit)
    return first if len(chunks) == 1 else b"".join(chunks)


def _gunzip(body: bytes, limit: int) -> bytes:
    """One or more gzip members, as RFC 1952 allows."""
    parts: list[bytes] = []
    left = limit
    while body:
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        try:
            parts.append(inflater.decompress(body, left + 1))
        except zlib.error as error:
            raise Problem("invalid_body", f"the body is not gzip: {error}") from None
        left -= len(parts[-1])
        if left < 0:
            raise _too_large(limit)
        if not inflater.eof:
            raise Problem("invalid_body", "the gzip body is cut off")
        body = inflater.unused_data
    return b"".join(parts)


def _unzstd(body: bytes, limit: int) -> bytes:
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
            io.BytesIO(body), read_across_frames=True
        ) as reader:
            unpacked = reader.read(limit + 1)
    except zstandard.ZstdError as error:
        raise Problem("invalid_body", f"the body is not zstd: {error}") from None
    if len(unpacked) > limit:
        raise _too_large(limit)
    return unpacked


def _too_large(limit: int) -> Problem:
    return Problem("body_too_large", f"a body may have {limit} bytes, unpacked too", limit=limit)
