"""Compresses answers with the Content-Encoding that a client accepts: JSON and its kin only, and only large ones.

An answer in pieces is compressed piece by piece, when its client has taken the ones before.

Stored batches are not compressed again: they are compressed already, or their producer chose not to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from engine.format.compression import Packer, pack
from gateway.http.content_encoding import choose_encoding
from gateway.http.offload import Offload
from gateway.http.request import Request
from gateway.http.response import NextPiece, Response

IN_LOOP_BYTES_MAX = 64 * 1024  # takes half a millisecond
_PACKED = ("application/json", "application/x-ndjson", "application/cloudevents-batch+json")


async def compress_response(request: Request, response: Response) -> Response:
    """Returns the answer of a fetch, compressed if the client accepts that and it is large enough."""
    http, size_bytes = request.http, response.size_bytes
    if response.rest is None and size_bytes < http.compress_bytes_min:  # too small to be counted, too
        return response
    http.count_response(request, size_bytes)  # counted before it waits in the queue, with other large ones
    if response.headers.get("Content-Type") not in _PACKED:
        return response
    if "Vary" not in response.headers:
        response.headers["Vary"] = "Accept-Encoding"
    encoding = choose_encoding(request.headers.get("Accept-Encoding", ""))
    if encoding is None:
        return response
    body = response.join()
    if response.rest is None:
        response.body = await _compress(http.offload, body, partial(pack, encoding, body))
    else:
        pieces = _PackedPieces(encoding, response.rest, http.offload)
        response.body, response.rest = await pieces.first(body), pieces.next
    response.headers["Content-Encoding"] = encoding
    return response


class _PackedPieces:
    """The pieces of one answer, compressed."""

    def __init__(self, encoding: str, rest: NextPiece, offload: Offload) -> None:
        self._packer = Packer(encoding)
        self._rest = rest
        self._offload = offload

    async def first(self, piece: bytes | bytearray) -> bytes:
        return await self._pack(piece, is_last=False)

    async def next(self) -> tuple[bytes, bool]:
        """Returns the next piece, and whether it is the last one. Raises what the rest of the answer raises."""
        piece, is_last = await self._rest()
        if not piece and not is_last:
            return piece, False
        return await self._pack(piece, is_last=is_last), is_last

    async def _pack(self, piece: bytes | bytearray, *, is_last: bool) -> bytes:
        return await _compress(self._offload, piece, partial(self._packer.pack, piece, is_last=is_last))


async def _compress(offload: Offload, text: bytes | bytearray, pack_it: Callable[[], bytes]) -> bytes:
    """Compresses on the loop, or a large text in a thread."""
    return pack_it() if len(text) <= IN_LOOP_BYTES_MAX else await offload.in_thread(pack_it)
