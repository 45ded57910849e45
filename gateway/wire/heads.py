"""Heads of requests: made from the fields of HTTP/2 (RFC 9113 8.2 and 8.3), or known from before. Pure.

Clients of HTTP/1.1 repeat their heads, and llhttp need not see one twice. A head is known if it is one of the last of
its connection byte for byte, except for the values of headers that differ by request, and for the offset of a fetch.
These values must be visible ASCII without white space, which llhttp does not change. All else is for llhttp.
Invariants: a known head came in one piece with its body, and keeps its connection; it has the fields that llhttp makes
of its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gateway.wire.frames import COMPRESSION_ERROR, PROTOCOL_ERROR, ConnectionFault, StreamFault
from gateway.wire.hpack import BrokenBlock, Decoder
from gateway.wire.messages import Header, RequestHead, size_of, split_target

PSEUDO_MAX = 4
KNOWN_MAX = 64  # blocks of a connection
KNOWN_BYTES_MAX = 512
KNOWN_FIELDS_MAX = 64  # a field takes one byte of a block and some hundred of what is derived from it
HTTP1_KNOWN_MAX = 4  # heads of a connection of HTTP/1.1, of up to so many bytes
HTTP1_KNOWN_BYTES_MAX = 1024
_PSEUDO = frozenset({":method", ":scheme", ":path", ":authority"})
_OF_CONNECTIONS = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH = re.compile(r"[!-~]+")
_LENGTH = b"content-length"
_VARYING = frozenset({_LENGTH, b"idempotency-key", b"producer-seq", b"x-request-id"})
_IS_VALUE = re.compile(rb"[!-~]+").fullmatch
_IS_LENGTH = re.compile(rb"[0-9]{1,15}").fullmatch
_OFFSET_BYTES = re.compile(rb"[?&]offset=([0-9]{1,18})(?=[& ])")
_OFFSET_TEXT = re.compile(r"(?:^|&)offset=([0-9]{1,18})(?=&|$)")
_DIGITS = re.compile(rb"[0-9]{1,18}")
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


class _Gap(NamedTuple):
    """The value of a header that differs by request: the number of the header, and the bytes up to the next gap."""

    place: int
    is_length: bool
    rest: bytes


class _Shape(NamedTuple):
    """A head with gaps. `query` is what stands around the offset of its query, and `after_offset` the bytes behind."""

    start: bytes
    gaps: tuple[_Gap, ...]
    head: RequestHead
    query: tuple[str, str] | None = None
    after_offset: bytes = b""


class KnownHeads:
    """The known heads of a connection of HTTP/1.1."""

    def __init__(self, header_bytes_max: int) -> None:
        self._bytes_max = min(HTTP1_KNOWN_BYTES_MAX, header_bytes_max)
        self._heads: dict[bytes, RequestHead] = {}
        self._shapes: list[_Shape] = []

    def __repr__(self) -> str:
        return f"KnownHeads({len(self._heads)}, shapes={len(self._shapes)})"

    def __bool__(self) -> bool:
        return bool(self._heads)

    def find(self, data: bytes, head_bytes: int) -> RequestHead | None:
        """Returns the head of a request; None for llhttp."""
        head = self._heads.get(data[:head_bytes])
        if head is None and head_bytes <= self._bytes_max:
            for shape in self._shapes:
                if data.startswith(shape.start) and (head := _filled(shape, data, head_bytes)) is not None:
                    return head
        return head

    def add(self, data: bytes, head: RequestHead) -> None:
        """Keeps a head and its bytes."""
        if len(data) > self._bytes_max:
            return
        if len(self._heads) >= HTTP1_KNOWN_MAX:
            self._heads.clear()
            self._shapes.clear()
        self._heads[data] = head
        shape = _shape(data, head)
        if shape is not None:
            self._shapes.append(shape)


def _shape(data: bytes, head: RequestHead) -> _Shape | None:
    """Returns the head with gaps; None if it has none, or one twice, or is without some of the lines."""
    if data.count(b"\r\n") != len(head.headers) + 2:
        return None
    at = data.index(b"\r\n") + 2
    begin, names = 0, set()
    places: list[tuple[int, bool]] = []
    pieces: list[bytes] = []
    for place in range(len(head.headers)):
        end = data.index(b"\r\n", at)
        name, _, value = data[at:end].partition(b": ")
        lower = name.lower()
        if lower in names:
            return None
        if lower in _VARYING:
            names.add(lower)
        if lower in _VARYING and _IS_VALUE(value):
            pieces.append(data[begin : end - len(value)])
            places.append((place, lower == _LENGTH))
            begin = end
        at = end + 2
    pieces.append(data[begin:])
    offset = _offset_of(pieces[0], head.query)
    if offset is None and not places:
        return None
    start, *rest = pieces
    gaps = tuple(_Gap(*place, piece) for place, piece in zip(places, rest, strict=True))
    if offset is None:
        return _Shape(start, gaps, head)
    query, (begin, end) = offset
    return _Shape(start[:begin], gaps, head, query, start[end:])


def _offset_of(start: bytes, query: str) -> tuple[tuple[str, str], tuple[int, int]] | None:
    """Returns the texts around the offset of a query, and its place in the bytes; None unless it has just one."""
    in_bytes = [one.span(1) for one in _OFFSET_BYTES.finditer(start, 0, start.index(b"\r\n"))]
    in_text = [one.span(1) for one in _OFFSET_TEXT.finditer(query)]
    if len(in_bytes) != 1 or len(in_text) != 1:
        return None
    ((begin, end),) = in_text
    return (query[:begin], query[end:]), in_bytes[0]


def _filled(shape: _Shape, data: bytes, head_bytes: int) -> RequestHead | None:
    """Returns the head of the shape with the values of these bytes; None if they have another shape."""
    values: list[tuple[int, str]] = []
    at, length, query = len(shape.start), shape.head.content_length, shape.head.query
    if shape.query is not None:
        digits = _DIGITS.match(data, at)
        if digits is None or not data.startswith(shape.after_offset, digits.end()):
            return None
        query = digits.group().decode().join(shape.query)
        at = digits.end() + len(shape.after_offset)
    for place, is_length, rest in shape.gaps:
        end = data.find(b"\r\n", at, head_bytes)
        value = data[at:end]
        if not data.startswith(rest, end) or not (_IS_LENGTH if is_length else _IS_VALUE)(value):
            return None
        text = value.decode()
        if is_length:
            length = int(text)
        values.append((place, text))
        at = end + len(rest)
    return shape.head.varied(query, values, length) if at == head_bytes else None
