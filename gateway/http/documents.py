"""A document of administration as an answer: as its tenant may see it, with a tag if it is polled, and compressed."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.http.caching import is_not_modified, tag_of
from gateway.http.request import Request
from gateway.http.response import Response, json_response
from gateway.http.response_compression import compress_response

_POLLED = {"Cache-Control": "private, no-cache", "Vary": "Accept-Encoding, Authorization"}


async def answer_document(request: Request, document: Mapping[str, object], *, is_polled: bool = False) -> Response:
    """Returns a document as JSON. `is_polled`: with a tag, and 304 for a client that has this document already.

    The operation is in SHOWN of gateway/access/names.py, since a compressed body cannot be shown to a tenant later.
    """
    if request.space is not None:
        document = request.space.shown(document)
    response = json_response(document)
    if is_polled:
        tag = tag_of(response.body, is_exact=False)
        response.headers |= {**_POLLED, "ETag": tag}
        if is_not_modified(request.headers.get("If-None-Match"), tag):
            del response.headers["Content-Type"]
            return Response(headers=response.headers, status=304)
    return await compress_response(request, response)
