"""The values that the protocol cores and their shells exchange: heads of requests, and events of a connection.

Values only. A `RequestHead` may be shared by many requests (clients repeat theirs byte by byte), so no reader changes
one; `memo` is for what its reader derives from it, and `shared_memo` for what it derives from all that differ from it
by a key, a sequence or a length. Heads that differ by request in few values are a `VariedHead` each.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

Header = tuple[str, str]

SMALL_BYTES = 64 * 1024  # an answer or a chunk of up to this size is sent with its head, as one piece
STATUS_LINES = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n" for one in HTTPStatus}
_HEAD_END = b"\r\n\r\n"
_LINE = re.compile(rb"[^ ]+ [^ ]+ HTTP/[0-9]\.[0-9]\r")
_TARGET = re.compile(rb"(?:[Hh][Tt][Tt][Pp][Ss]?://[!-~]*|/[!-~]*|\*|[^/:]+:[0-9]+)")  # the last one of CONNECT
_HOP_HEADERS = ("upgrade", "connection", "http2-settings")


class WireLimits(NamedTuple):
    """Bounds of a connection, in bytes and numbers."""

    header_bytes_max: int = 64 * 1024
    headers_max: int = 100
    streams_max: int = 1024
    unsent_bytes_max: int = 128 * 1024 * 1024


class RequestHead:
    """Method, target and headers of a request.

    `path` and `query` are as they were sent, percent signs and all. `authority` is that of the target, empty if the
    target has none. `version` is "1.0", "1.1" or "2"; `size_bytes` is 0 before "2".
    """

    __slots__ = ("_headers", "authority", "content_length", "expects_continue", "memo", "method", "path", "query",
                 "shared_memo", "size_bytes", "version")  # fmt: skip

    def __init__(
        self,
        version: str,
        method: str,
        path: str,
        query: str,
        authority: str,
        headers: tuple[Header, ...],
        size_bytes: int = 0,
    ) -> None:
        self.version = version
        self.method = method
        self.path = path
        self.query = query
        self.authority = authority
        self._headers: tuple[Header, ...] | None = headers
        self.size_bytes = size_bytes
        self.content_length: int | None = None
        self.expects_continue = False
        self.memo: Any = None
        self.shared_memo: Any = None
        for name, value in headers:
            lower = name.lower()
            if lower == "content-length":
                self.content_length = int(value)
            elif lower == "expect":
                self.expects_continue = value.lower() == "100-continue"

    def __repr__(self) -> str:
        return f"RequestHead({self.version} {self.method} {self.path})"

    @property
    def headers(self) -> tuple[Header, ...]:
        return self._headers or ()

    def values_of(self, name: str) -> list[str]:
        """Returns all values of a header, by its name in lower case."""
        return [value for one, value in self.headers if one.lower() == name]


class Varying(NamedTuple):
    """The headers whose values differ by request: their places in the head, and which of them are these; -1 is none."""

    places: tuple[int, ...]
    key: int = -1  # Idempotency-Key
    sequence: int = -1  # Producer-Seq
    request_id: int = -1  # X-Request-Id
    length: int = -1  # Content-Length
    traceparent: int = -1

    @property
    def shares_memo(self) -> bool:
        """Whether none of the values is one that `shared_memo` depends on."""
        return self.request_id < 0 and self.traceparent < 0


class VariedHead(RequestHead):
    """A head that differs from `like` in nothing but its length, the `offset` of its query, and these `values`.

    The values are visible ASCII without white space, in the order of `varying`. Headers are made when asked for, which
    most are not. `own` has those that differ.
    """

    __slots__ = ("_own", "like", "values", "varying")

    def __init__(
        self,
        like: RequestHead,
        query: str,
        varying: Varying,
        values: tuple[str, ...],
        content_length: int | None,
        memo: Any = None,
    ) -> None:
        self.like = like
        self.method, self.version, self.path, self.query = like.method, like.version, like.path, query
        self.authority, self.size_bytes, self.expects_continue = like.authority, like.size_bytes, like.expects_continue
        self.content_length = content_length
        self.memo = memo
        self.varying = varying
        self.values = values
        self._headers: tuple[Header, ...] | None = None

    @property
    def headers(self) -> tuple[Header, ...]:
        return self._vary() if self._headers is None else self._headers

    @property
    def own(self) -> list[Header]:
        if self._headers is None:
            self._vary()
        return self._own

    def _vary(self) -> tuple[Header, ...]:
        headers, self._own = list(self.like.headers), list[Header]()
        for place, value in zip(self.varying.places, self.values, strict=True):
            name, before = headers[place]
            if value != before:
                headers[place] = (name, value)
                self._own.append(headers[place])
        self._headers = tuple(headers)
        return self._headers


class AnswerForm:
    """Answers that differ by the value of one header, their length and their date.

    `start`, `fields` and `end` are the bytes of HTTP/1.1 around these, `memo` is for the header block of HTTP/2.
    """

    __slots__ = ("after", "before", "date", "end", "fields", "memo", "name", "start", "status")

    def __init__(self, status: int, before: tuple[Header, ...], name: str, after: tuple[Header, ...]) -> None:
        self.status = status
        self.before = before
        self.name = name
        self.after = after
        self.memo: Any = None
        start = f"{STATUS_LINES[status]}{head_lines(before)}{name.lower()}: "
        self.start = start.encode("latin-1")
        self.fields = f"\r\n{head_lines(after)}content-length: ".encode("latin-1")
        self.date: Header = ("", "")
        self.end = b""

    def __repr__(self) -> str:
        return f"AnswerForm({self.status}, {self.name})"

    def headers(self, value: bytes, size_bytes: int, date: Header) -> list[Header]:
        own = (self.name, value.decode("latin-1"))
        return [*self.before, own, *self.after, ("Content-Length", str(size_bytes)), date]

    def end_with(self, date: Header) -> None:
        """Makes the end of a head, which is the same until the date changes."""
        self.date, self.end = date, f"\r\n{head_lines([date])}\r\n".encode("latin-1")


class RequestLines:
    """Cuts the bytes of HTTP/1.1 so that a request begins a piece, and checks its request line.

    llhttp takes RTSP and ICE for HTTP, and several spaces between the parts of the line.
    """

    __slots__ = ("_last", "_line")

    def __init__(self) -> None:
        self._line: bytes | None = b""  # as far as it has come; None: it was whole
        self._last = b""  # up to 3 bytes, in which the end of a head may have begun

    def begin(self) -> None:
        """Expects a request next."""
        self._line = b""

    def end_of_piece(self, data: bytes, start: int, body_left: int) -> int:
        """Returns where the piece ends that begins at `start`: with a body of known length, or behind an empty line."""
        last, self._last = self._last, b""
        if body_left > 0:
            return min(len(data), start + body_left)
        split = (last + data[start : start + 3]).find(_HEAD_END)
        if split >= 0:
            return start + split + len(_HEAD_END) - len(last)
        end = data.find(_HEAD_END, start)
        if end >= 0:
            return end + len(_HEAD_END)
        self._last = (last + data[max(start, len(data) - 3) :])[-3:]
        return len(data)

    def takes(self, piece: bytes) -> bool:
        """Returns False if the piece ends the line, and it is none of HTTP. Bytes without a letter first pass."""
        if self._line is None:
            return True
        line, is_whole, _ = (self._line + piece).lstrip(b"\r\n").partition(b"\n")
        self._line = None if is_whole else line
        return not is_whole or not line[:1].isalpha() or _LINE.fullmatch(line) is not None


def is_target(target: bytes) -> bool:
    """Returns whether a request of HTTP may have this target (RFC 9112 3.2): visible ASCII, of this scheme or none."""
    return _TARGET.fullmatch(target) is not None


class RequestBegan(NamedTuple):
    """A request's head is there, and its `body` if that has come with it. `is_complete`: no more follows."""

    stream_id: int
    head: RequestHead
    is_complete: bool
    body: bytes = b""


class BodyPart(NamedTuple):
    """Bytes of a body."""

    stream_id: int
    data: bytes


class BodyEnded(NamedTuple):
    """The body is complete. Trailers are ignored (RFC 9110 6.5.1)."""

    stream_id: int


class BodyCut(NamedTuple):
    """The body breaks its framing and will not be complete; the client may still read an answer."""

    stream_id: int


class StreamReset(NamedTuple):
    """The client no longer wants an answer."""

    stream_id: int


class HeadRejected(NamedTuple):
    """A request that no application sees: its head breaks HTTP or is too large."""

    stream_id: int
    status: int


Event = RequestBegan | BodyPart | BodyEnded | BodyCut | StreamReset | HeadRejected


def end_body(events: list[Event], stream_id: int, data: bytes = b"", at: int = -1) -> None:
    """Adds the end of a body, behind its last bytes: to the event of its request if all of it has come with that.

    `at` is the place of that event; by default the last one.
    """
    last = events[-1] if events else None
    if not data and type(last) is BodyPart and last.stream_id == stream_id:
        data = last.data
        events.pop()
    began = events[at] if events else None
    if data and type(began) is RequestBegan and began.stream_id == stream_id:
        events[at] = RequestBegan(stream_id, began.head, True, data)
        return
    if data:
        events.append(BodyPart(stream_id, data))
    events.append(BodyEnded(stream_id))


def split_target(target: str) -> tuple[str, str, str]:
    """Returns authority, path and query of a request target (RFC 9112 3.2), as they were sent."""
    authority = ""
    if not target.startswith("/") and "://" in target:
        authority, slash, rest = target.partition("://")[2].partition("/")
        if not slash and "?" in authority:
            authority, _, rest = authority.partition("?")
            rest = f"?{rest}"
        target = f"/{rest}"
    path, _, query = target.partition("#")[0].partition("?")
    return authority, path, query


def take_pieces(out: deque[bytes | bytearray | memoryview], budget_bytes: int) -> list[bytes | bytearray | memoryview]:
    """Takes pieces to send from the left, about so many bytes."""
    taken: list[bytes | bytearray | memoryview] = []
    while out and budget_bytes > 0:
        piece = out.popleft()
        if len(piece) > budget_bytes + SMALL_BYTES:
            view = memoryview(piece)
            piece = view[:budget_bytes]
            out.appendleft(view[budget_bytes:])
        taken.append(piece)
        budget_bytes -= len(piece)
    return taken


def chunked(data: bytes | bytearray) -> tuple[bytes | bytearray, ...]:
    """Returns data as a chunk of HTTP/1.1. A large one is not copied."""
    if len(data) <= SMALL_BYTES:
        return (b"".join((b"%x\r\n" % len(data), data, b"\r\n")),)
    return b"%x\r\n" % len(data), data, b"\r\n"


def head_without_upgrade(method: str, target: bytes, version: str, headers: Iterable[Header]) -> bytes:
    """Returns a head of HTTP/1.1 without the headers that ask for another protocol."""
    kept = [f"{name}: {value}\r\n" for name, value in headers if name.lower() not in _HOP_HEADERS]
    head = f"{method} {target.decode('latin-1')} HTTP/{version}\r\n{''.join(kept)}\r\n"
    return head.encode("utf-8", "surrogateescape")


def head_lines(headers: Iterable[Header]) -> str:
    """Returns the lines of these headers of an answer of HTTP/1.1."""
    return "".join([f"{name.lower()}: {value}\r\n" for name, value in headers])


def size_of(headers: Iterable[Header]) -> int:
    """Returns the bytes of names and values, and 32 for each, as RFC 9113 counts them."""
    return sum(len(name) + len(value) + 32 for name, value in headers)
