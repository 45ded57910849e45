"""The encodings of HTTP bodies (Content-Encoding): those of requests are undone within a bound, answers take one.

engine/format has the compression itself. request.py and response_compression.py apply it to the bodies.
"""

from __future__ import annotations

from engine.format.decompression import FIRST_ROOM_BYTES, Broken, DoesNotFit, unpack
from gateway.http.negotiation import parse_qualities
from gateway.http.offload import Offload
from gateway.http.problems import Problem

ENCODINGS = ("gzip", "zstd")
IDENTITY = "identity"
_SYNONYMS = {"x-gzip": "gzip"}  # RFC 9110 8.4.1.3
_IN_LOOP_BYTES_MAX = 64 * 1024  # 3,000 gzip members that are all empty take 14 ms


def check_encoding(name: str) -> str:
    """Returns the encoding of a request's body in lower case. Raises Problem unsupported_encoding."""
    encoding = _SYNONYMS.get(name.lower(), name.lower())
    if encoding not in (IDENTITY, *ENCODINGS):
        text = f"Content-Encoding is {encoding!r}; give {', '.join(ENCODINGS)} or none"
        raise Problem("unsupported_encoding", text, headers={"Accept-Encoding": ", ".join(ENCODINGS)})
    return encoding


async def decode_body(encoding: str, body: bytes, limit: int, offload: Offload) -> bytes:
    """Returns a body of at most `limit` bytes. A small one is unpacked on the loop, as its size is known afterwards.

    Raises DoesNotFit, Problem invalid_body.
    """
    try:
        if len(body) <= _IN_LOOP_BYTES_MAX:
            try:
                return bytes(unpack(encoding, body, min(limit, FIRST_ROOM_BYTES)))
            except DoesNotFit:
                if limit <= FIRST_ROOM_BYTES:
                    raise
        return await offload.in_thread(lambda: bytes(unpack(encoding, body, limit)))
    except Broken as error:
        raise Problem("invalid_body", f"the body is not what Content-Encoding says: {error}") from None


def choose_encoding(accept_encoding: str) -> str | None:
    """Returns the Content-Encoding that the client prefers among those offered; None: no encoding.

    At equal quality returns zstd, which costs half. A wildcard selects no encoding: a client that decodes one names it.
    """
    quality = {name.removeprefix("x-"): quality for quality, name in parse_qualities(accept_encoding)}
    zstd, gzip = quality.get("zstd", 0.0), quality.get("gzip", 0.0)
    best = max(zstd, gzip)
    if best == 0 or quality.get(IDENTITY, 0.0) > best:
        return None
    return "zstd" if zstd == best else "gzip"
