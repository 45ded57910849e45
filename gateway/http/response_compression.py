"""Compresses answers with the Content-Encoding that a client accepts: JSON and its kin only, and only large ones.

Stored batches are not compressed again: they are compressed already, or their producer chose not to.
"""

from __future__ import annotations

from engine.format.compression import pack
from gateway.http.content_encoding import choose_encoding
from gateway.http.context import HTTP
from gateway.http.messages import HttpResponse, Request

IN_LOOP_BYTES_MAX = 64 * 1024  # takes half a millisecond
_PACKED = ("application/json", "application/x-ndjson", "application/cloudevents-batch+json")


async def packed(request: Request, response: HttpResponse) -> HttpResponse:
    """Returns the answer of a fetch, compressed if the client accepts that and it is large enough."""
    http, body = request.app[HTTP], response.body
    if len(body) < http.compress_bytes_min:  # too small to be counted, too
        return response
    http.count_response(request, len(body))  # counted before it waits in the queue, with other large ones
    if response.headers.get("Content-Type") not in _PACKED:
        return response
    if "Vary" not in response.headers:
        response.headers["Vary"] = "Accept-Encoding"
    encoding = choose_encoding(request.headers.get("Accept-Encoding", ""))
    if encoding is None:
        return response
    whole = body
    response.body = (
        pack(encoding, whole)
        if len(whole) <= IN_LOOP_BYTES_MAX
        else await http.offload.in_thread(lambda: pack(encoding, whole))
    )
    response.headers["Content-Encoding"] = encoding
    return response
