"""Checks the head of each request, whatever its route: Host, headers that appear once, transfer codings.

Runs before any other decision. The server in front checks the framing; it delivers requests without Host, with two of
them, or with transfer codings that it does not decode.
"""

from __future__ import annotations

import re

from aiohttp import HttpVersion11, web
from multidict import CIMultiDictProxy, istr

from gateway.access.hosts import Hosts
from gateway.http.problems import Problem
from gateway.routing.leader_headers import FORWARD, check_forward

CLIENT_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
# With two values, the valid one would be a guess. gateway/access/access.py checks Authorization, gateway/wire
# Content-Length.
_ONCE = frozenset({"host", "origin", "content-type", "content-encoding", "idempotency-key", "last-event-id"})
_ONCE_PREFIXES = ("penstock-", "producer-", "ce-")
# The look-up of an istr takes half the time of a plain text.
_HOST, _TRANSFER_ENCODING = istr("Host"), istr("Transfer-Encoding")
FORWARD_HEADER, CLIENT_ID_HEADER, KEY_HEADER = istr(FORWARD), istr("Penstock-Client-Id"), istr("Penstock-Key")


class RequestHead:
    """The head check of one node."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    def check(self, request: web.Request) -> None:
        """Checks the head. Raises Problem invalid_header, host_not_allowed, unsupported_transfer_coding."""
        headers = request.headers
        if len(headers) != len(list(headers)):  # iterates over distinct names
            _check_repeated(headers)
        host = headers.get(_HOST)
        if host is not None:
            if host not in self._hosts.accepted:
                self._hosts.check(host)
        elif request.version >= HttpVersion11:
            raise Problem("invalid_header", "the request has no Host, which HTTP/1.1 and HTTP/2 demand")
        if _TRANSFER_ENCODING in headers:
            _check_transfer_coding(headers)


def check_common_headers(request: web.Request) -> None:
    """Checks the headers that every route takes. Raises Problem invalid_header, misdirected."""
    if FORWARD in request.headers:
        check_forward(request)
    client_id = request.headers.get("Penstock-Client-Id")
    if client_id is not None and not CLIENT_ID.fullmatch(client_id):  # it is written to logs
        raise Problem("invalid_header", "Penstock-Client-Id takes 1 to 128 of A-Z a-z 0-9 . _ -")
    if not request.headers.get("Penstock-Key", "").isascii():
        raise Problem("invalid_header", "Penstock-Key takes ASCII only; give other keys as ?key= or in the body")


def _check_repeated(headers: CIMultiDictProxy[str]) -> None:
    for name in map(str.lower, headers):
        if (name in _ONCE or name.startswith(_ONCE_PREFIXES)) and len(headers.getall(name)) > 1:
            raise Problem("invalid_header", f"the header {name} is there more than once")


def _check_transfer_coding(headers: CIMultiDictProxy[str]) -> None:
    """RFC 9112 6.1: 501 for a coding that is not known; chunked may be applied once."""
    codings = [one.strip().lower() for one in ",".join(headers.getall(_TRANSFER_ENCODING)).split(",")]
    if codings == ["chunked"]:
        return
    if codings.count("chunked") == len(codings):
        raise Problem("invalid_header", "Transfer-Encoding names chunked more than once")
    text = f"Transfer-Encoding is {', '.join(codings)[:100]!r}; this node takes chunked alone, and Content-Encoding"
    raise Problem("unsupported_transfer_coding", text)
