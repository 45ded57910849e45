"""Checks the fields of an HTTP/2 request (RFC 9113 8.2 and 8.3) and builds its head. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.wire.frames import COMPRESSION_ERROR, PROTOCOL_ERROR, ConnectionFault, StreamFault
from gateway.wire.hpack import BrokenBlock, Decoder
from gateway.wire.messages import Header, RequestHead, size_of, split_target

PSEUDO_MAX = 4
KNOWN_MAX = 64  # blocks of a connection
KNOWN_BYTES_MAX = 512
KNOWN_FIELDS_MAX = 64  # a field takes one byte of a block and some hundred of what is derived from it
_PSEUDO = frozenset({":method", ":scheme", ":path", ":authority"})
_OF_CONNECTIONS = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH = re.compile(r"[!-~]+")
_BAD_VALUE = re.compile(r"[\0\r\n]|^[ \t]|[ \t]$")


class Malformed(ValueError):
    """The fields are not those of a request; its stream is reset."""


class HeadReader:
    """Reads the header blocks of one connection in their order, and caches repeated ones."""

    def __init__(self, header_bytes_max: int, headers_max: int) -> None:
        self._decoder = Decoder(header_bytes_max, headers_max + PSEUDO_MAX)
        self._known: dict[bytes, RequestHead] = {}  # valid until the decoder's table changes

    def __repr__(self) -> str:
        return f"HeadReader(known={len(self._known)}, {self._decoder})"

    def read(self, stream_id: int, block: bytes) -> RequestHead | None:
        """Returns the head that a block makes; None if it is too large. Raises StreamFault, ConnectionFault."""
        head = self._known.get(block)
        if head is not None:
            return head
        fields = self.fields(block)
        if self._decoder.is_too_large:
            return None
        try:
            head = head_of(fields)
        except Malformed:
            raise StreamFault(stream_id, PROTOCOL_ERROR) from None
        if not self._decoder.has_changed and len(block) <= KNOWN_BYTES_MAX and len(fields) <= KNOWN_FIELDS_MAX:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[block] = head
        return head

    def fields(self, block: bytes) -> list[Header]:
        """Returns the fields of a block, such as trailers. Raises ConnectionFault."""
        try:
            fields = self._decoder.decode(block)
        except BrokenBlock as error:
            raise ConnectionFault(COMPRESSION_ERROR, str(error)) from None
        if self._decoder.has_changed:
            self._known.clear()
        return fields


def head_of(fields: Sequence[Header]) -> RequestHead:
    """Returns the head that these fields make. Raises Malformed."""
    pseudo: dict[str, str] = {}
    headers: list[Header] = []
    for name, value in fields:
        if name.startswith(":"):
            if headers or name in pseudo or name not in _PSEUDO:
                raise Malformed(f"the pseudo-header {name} is unknown, repeated or behind a header")
            pseudo[name] = value
        else:
            headers.append((name, value))
    check_headers(headers)
    method, path = pseudo.get(":method", ""), pseudo.get(":path", "")
    if not _METHOD.fullmatch(method) or any(_BAD_VALUE.search(value) for value in pseudo.values()):
        raise Malformed("a pseudo-header has a value that it cannot have")
    if method == "CONNECT":
        path = "*"  # its target is the authority; no route takes it
    elif ":scheme" not in pseudo or not _PATH.fullmatch(path) or not (path.startswith("/") or path == "*"):
        raise Malformed("the request has no scheme or no path")
    lengths = {value for name, value in headers if name == "content-length"}
    if len(lengths) > 1 or not all(value.isascii() and value.isdecimal() and len(value) < 20 for value in lengths):
        raise Malformed("content-length is not one number")
    _, path, query = split_target(path)
    size_bytes = size_of(fields)
    return RequestHead("2", method, path, query, pseudo.get(":authority", ""), tuple(headers), size_bytes)


def check_headers(headers: Sequence[Header]) -> None:
    """Checks the headers behind the pseudo-headers, or trailers. Raises Malformed."""
    for name, value in headers:
        if not _NAME.fullmatch(name) or name in _OF_CONNECTIONS or (name == "te" and value != "trailers"):
            raise Malformed(f"the header {name!r} cannot be there")
        if _BAD_VALUE.search(value):
            raise Malformed(f"the header {name} has a value that no header can have")
