"""Heads of requests: made from the fields of HTTP/2 (RFC 9113 8.2 and 8.3), or known from before. Pure.

Clients repeat their heads, except for the values of headers that differ by request, and for the offset of a fetch. A
head of HTTP/1.1 is known if it is otherwise one of the last of its connection byte for byte: llhttp need not see it. A
head of HTTP/2 is known if its other fields are those of an earlier one, which was checked. The values must be visible
ASCII without white space, which llhttp does not change and no check refuses. All else is for llhttp and `head_of`.
Invariants: a known head of HTTP/1.1 came in one piece with its body, and keeps its connection; a known head has the
fields that llhttp or `head_of` makes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import penstock_codec
from gateway.wire.frames import COMPRESSION_ERROR, INTERNAL_ERROR, PROTOCOL_ERROR, ConnectionFault, StreamFault
from gateway.wire.hpack import BrokenBlock, decoder, decoder_of
from gateway.wire.messages import Header, RequestHead, VariedHead, Varying, size_of, split_target

PSEUDO_MAX = 4
KNOWN_MAX = 64  # blocks of a connection
KNOWN_BYTES_MAX = 512
KNOWN_FIELDS_MAX = 64  # a field takes one byte of a block and some hundred of what is derived from it
SIMILAR_MAX = 4  # heads of a connection of HTTP/2 that others may be like, of up to so many bytes
SIMILAR_BYTES_MAX = 4096
HTTP1_KNOWN_MAX = 4  # heads of a connection of HTTP/1.1, of up to so many bytes
HTTP1_KNOWN_BYTES_MAX = 1024
_PSEUDO = frozenset({":method", ":scheme", ":path", ":authority"})
_OF_CONNECTIONS = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH = re.compile(r"[!-~]+")
_LENGTH_NAME = "content-length"
_VARYING = ("idempotency-key", "producer-seq", "x-request-id", _LENGTH_NAME, "traceparent")  # in the order of Varying
_VARIES = frozenset(_VARYING)
_TEXT, _LENGTH, _OFFSET = range(3)  # the kinds of gaps
_GAPS = (re.compile(rb"[!-~]+"), re.compile(rb"[0-9]{1,15}"), re.compile(rb"[0-9]{1,18}"))
_IS_VALUE = _GAPS[_TEXT].fullmatch
_IS_OF_KIND = [re.compile(gap.pattern.decode()).fullmatch for gap in _GAPS]
_OFFSET_BYTES = re.compile(rb"[?&]offset=([0-9]{1,18})(?=[& ])")
_OFFSET_TEXT = re.compile(r"(?:^|&)offset=([0-9]{1,18})(?=&|$)")
_BAD_VALUE = re.compile(r"[\0\r\n]|^[ \t]|[ \t]$")


class Malformed(ValueError):
    """The fields are not those of a request; its stream is reset."""


Pattern = tuple[tuple[str, str | int], ...]  # the fields of a head; of one that varies its name and the kind of its gap


class _Similar(NamedTuple):
    """A head of HTTP/2 that others may be like."""

    pattern: Pattern
    head: RequestHead
    varying: Varying
    fixed_bytes: int  # of the head, without the values
    shares_memo: bool


class HeadReader:
    """Reads the header blocks of one connection in their order, and caches repeated ones."""

    def __init__(self, header_bytes_max: int, headers_max: int) -> None:
        self.has_resized = False  # the client has changed the size of the table, which `table` does not say
        self._limits = header_bytes_max, headers_max + PSEUDO_MAX
        self._decoder = decoder(*self._limits)
        self._known: dict[bytes, RequestHead] = {}  # valid until the decoder's table changes
        self._similar: list[_Similar] = []

    def __repr__(self) -> str:
        table = len(self._decoder.table())
        return f"HeadReader(known={len(self._known)}, similar={len(self._similar)}, table={table})"

    def __getstate__(self) -> dict[str, object]:
        """Returns what another process needs to go on: not the caches."""
        assert not self.has_resized
        return {"limits": self._limits, "table": self._decoder.table()[::-1]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.has_resized, self._limits = False, state["limits"]
        self._decoder = decoder_of(state["table"], *self._limits)
        self._known, self._similar = {}, []

    def read(self, stream_id: int, block: bytes) -> RequestHead | None:
        """Returns the head that a block makes; None if it is too large. Raises StreamFault, ConnectionFault."""
        head = self._known.get(block)
        if head is not None:
            return head
        fields = self.fields(block)
        if self._decoder.is_too_large:
            return None
        native = penstock_codec.native
        vary = vary_plainly if native is None else native.vary
        for similar in self._similar:
            values = vary(fields, similar[0])
            if values is not None:
                head = _varied(similar, values)
                break
        else:
            try:
                head = head_of(fields)
            except Malformed:
                raise StreamFault(stream_id, PROTOCOL_ERROR) from None
            if len(fields) <= KNOWN_FIELDS_MAX and head.size_bytes <= SIMILAR_BYTES_MAX:
                self._add_similar(head, fields)
        if not self._decoder.has_changed and len(block) <= KNOWN_BYTES_MAX and len(fields) <= KNOWN_FIELDS_MAX:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[block] = head
        return head

    def _add_similar(self, head: RequestHead, fields: Sequence[Header]) -> None:
        """Keeps a head that others may be like, if it has each value that varies once, and none is like it."""
        pattern = tuple([(field[0], _kind(field[0])) if field[0] in _VARIES else field for field in fields])
        places = {field[0]: place for place, field in enumerate(pattern) if type(field[1]) is int}
        if not places or len(places) < sum(type(field[1]) is int for field in pattern):
            return
        if any(similar.pattern == pattern for similar in self._similar):
            return
        if len(self._similar) >= SIMILAR_MAX:
            self._similar.clear()
        pseudo = len(fields) - len(head.headers)
        varying = _varying({name: place - pseudo for name, place in places.items()})
        value_bytes = sum(len(fields[place][1]) for place in places.values())
        self._similar.append(_Similar(pattern, head, varying, head.size_bytes - value_bytes, varying.shares_memo))

    def are_trailers(self, block: bytes) -> bool:
        """Returns whether a block, which is always decoded, has fields of trailers. Raises ConnectionFault."""
        fields = self.fields(block)
        try:
            check_headers(fields)
        except Malformed:
            return False
        return not self._decoder.is_too_large

    def fields(self, block: bytes) -> list[Header]:
        """Returns the fields of a block. Raises ConnectionFault."""
        if block and block[0] & 0xE0 == 0x20:
            self.has_resized = True
        try:
            fields = self._decoder.decode(block)
        except BrokenBlock as error:
            raise ConnectionFault(COMPRESSION_ERROR, str(error)) from None
        except Exception as error:  # the table may be out of step: no later block can be read
            raise ConnectionFault(INTERNAL_ERROR, "a header block cannot be decoded") from error
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
    if method == "CONNECT":  # RFC 9113 8.5: its target is the authority; no route takes it
        if ":scheme" in pseudo or ":path" in pseudo or ":authority" not in pseudo:
            raise Malformed("CONNECT has a scheme or a path, or no authority")
        path = "*"
    elif ":scheme" not in pseudo or not _PATH.fullmatch(path) or not (path.startswith("/") or path == "*"):
        raise Malformed("the request has no scheme or no path")
    lengths = {value for name, value in headers if name == "content-length"}
    if len(lengths) > 1 or not all(value.isascii() and value.isdecimal() and len(value) < 20 for value in lengths):
        raise Malformed("content-length is not one number")
    _, path, query = split_target(path)
    size_bytes = size_of(fields)
    return RequestHead("2", method, path, query, pseudo.get(":authority", ""), tuple(headers), size_bytes)


def vary_plainly(fields: Sequence[Header], pattern: Pattern) -> tuple[str, ...] | None:
    """Returns the values of a head that varies as the pattern does; None for another. The twin of `vary`."""
    if len(fields) != len(pattern):
        return None
    values: list[str] = []
    for field, expected in zip(fields, pattern, strict=True):
        kind = expected[1]
        if type(kind) is not int:
            if field != expected:
                return None
        elif field[0] != expected[0] or not _IS_OF_KIND[kind](field[1]):
            return None
        else:
            values.append(field[1])
    return tuple(values)


def _varied(similar: _Similar, values: tuple[str, ...]) -> VariedHead:
    """Returns a head like another one with these values."""
    _, head, varying, size_bytes, shares_memo = similar
    length = head.content_length if varying.length < 0 else int(values[varying.length])
    varied = VariedHead(head, head.query, varying, values, length, head.shared_memo if shares_memo else None)
    varied.size_bytes = size_bytes + sum(map(len, values))
    return varied


def check_headers(headers: Sequence[Header]) -> None:
    """Checks the headers behind the pseudo-headers, or trailers. Raises Malformed."""
    for name, value in headers:
        if not _NAME.fullmatch(name) or name in _OF_CONNECTIONS or (name == "te" and value != "trailers"):
            raise Malformed(f"the header {name!r} cannot be there")
        if _BAD_VALUE.search(value):
            raise Malformed(f"the header {name} has a value that no header can have")


class _Shape(NamedTuple):
    """A head with gaps. `pieces` begin with a byte for the kind of each gap, and are the bytes around them.

    `query` is what stands around the offset of its query, which is then in the first gap.
    """

    pieces: tuple[bytes, ...]
    head: RequestHead
    varying: Varying
    shares_memo: bool
    query: tuple[str, str] | None = None


class KnownHeads:
    """The known heads of a connection of HTTP/1.1."""

    def __init__(self, header_bytes_max: int) -> None:
        self._bytes_max = min(HTTP1_KNOWN_BYTES_MAX, header_bytes_max)
        self._heads: dict[bytes, RequestHead] = {}
        self._shapes: list[tuple[tuple[bytes, ...], RequestHead, Varying, bool, tuple[str, str] | None]] = []
        native = penstock_codec.native
        self._match = match_plainly if native is None else native.match_head
        self._has_varied = False  # the last head was found by its shape: the next one will probably be

    def __repr__(self) -> str:
        return f"KnownHeads({len(self._heads)}, shapes={len(self._shapes)})"

    def __bool__(self) -> bool:
        return bool(self._heads)

    def find(self, data: bytes, head_bytes: int) -> RequestHead | None:
        """Returns the head of a request; None for llhttp."""
        if not self._has_varied and (head := self._heads.get(data[:head_bytes])) is not None:
            return head
        if head_bytes <= self._bytes_max:
            match = self._match
            for pieces, like, varying, shares_memo, query in self._shapes:
                values = match(data, head_bytes, pieces)
                if values is None:
                    continue
                text, length = like.query, like.content_length
                if query is not None:
                    text, values = values[0].join(query), values[1:]
                if (at := varying.length) >= 0:
                    length = int(values[at])
                self._has_varied = True
                return VariedHead(like, text, varying, values, length, like.shared_memo if shares_memo else None)
        if self._has_varied:
            self._has_varied = False
            return self._heads.get(data[:head_bytes])
        return None

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
            self._shapes.append(shape[:])  # a plain tuple is unpacked in a third of the time


def _shape(data: bytes, head: RequestHead) -> _Shape | None:
    """Returns the head with gaps; None if it has none, one twice, or is without some of the lines."""
    if data.count(b"\r\n") != len(head.headers) + 2:
        return None
    at = data.index(b"\r\n") + 2
    begin, names = 0, set()
    places: dict[str, int] = {}
    pieces: list[bytes] = []
    for place in range(len(head.headers)):
        end = data.index(b"\r\n", at)
        name, _, value = data[at:end].partition(b": ")
        lower = name.decode("latin-1").lower()
        if lower in names:
            return None
        if lower in _VARIES:
            names.add(lower)
        if lower in _VARIES and _IS_VALUE(value):
            pieces.append(data[begin : end - len(value)])
            places[lower] = place
            begin = end
        at = end + 2
    pieces.append(data[begin:])
    offset = _offset_of(pieces[0], head.query)
    kinds = bytes([_kind(name) for name in places])
    varying = _varying(places)
    if offset is None:
        return _Shape((kinds, *pieces), head, varying, varying.shares_memo) if places else None
    query, (begin, end) = offset
    start, *rest = pieces
    pieces = [start[:begin], start[end:], *rest]
    return _Shape((bytes([_OFFSET]) + kinds, *pieces), head, varying, varying.shares_memo, query)


def _kind(name: str) -> int:
    return _LENGTH if name == _LENGTH_NAME else _TEXT


def _varying(places: dict[str, int]) -> Varying:
    """Returns the headers that vary, by the places of their names."""
    order = {name: number for number, name in enumerate(places)}
    return Varying(tuple(places.values()), *[order.get(name, -1) for name in _VARYING])


def _offset_of(start: bytes, query: str) -> tuple[tuple[str, str], tuple[int, int]] | None:
    """Returns the texts around the offset of a query, and its place in the bytes; None unless it has just one."""
    in_bytes = [one.span(1) for one in _OFFSET_BYTES.finditer(start, 0, start.index(b"\r\n"))]
    in_text = [one.span(1) for one in _OFFSET_TEXT.finditer(query)]
    if len(in_bytes) != 1 or len(in_text) != 1:
        return None
    ((begin, end),) = in_text
    return (query[:begin], query[end:]), in_bytes[0]


def match_plainly(data: bytes, head_bytes: int, shape: tuple[bytes, ...]) -> tuple[str, ...] | None:
    """Returns the texts in the gaps of a head; None if it has another shape. The twin of the compiled `match_head`."""
    kinds, start, *rest = shape
    if not data.startswith(start):
        return None
    at, values = len(start), []
    for kind, piece in zip(kinds, rest, strict=True):
        found = _GAPS[kind].match(data, at, head_bytes)
        if found is None or not data.startswith(piece, found.end()):
            return None
        values.append(found.group().decode())
        at = found.end() + len(piece)
    return tuple(values) if at == head_bytes else None
