"""One request as handlers take it: its route, its head, the caller, its body, and what it holds until its answer.

The server makes it of what the parser has delivered (gateway/server/requests.py). A limit of a body applies to the
received and to the unpacked bytes: unpacking stops at the limit, and large bodies are unpacked in a thread. Bytes count
as they arrive and not as they are announced, so a client that announces much and sends nothing takes no room. All bytes
of a request are released when it has been answered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from email.parser import HeaderParser
from email.policy import HTTP
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from multidict import CIMultiDictProxy, istr

from engine.format.decompression import DoesNotFit
from engine.runtime.pending import Pending
from gateway.http.body import Body
from gateway.http.content_encoding import IDENTITY, check_encoding, decode_body
from gateway.http.offload import Offload
from gateway.http.problems import Problem
from gateway.http.response import REQUEST_ID_HEADER, Response, Stream
from gateway.http.rights import ANONYMOUS, Caller, Names, Need
from gateway.quotas.charges import Charges
from gateway.quotas.topic_meter import TopicMeter
from gateway.tracing.span import Span
from gateway.tracing.trace_context import TraceContext
from gateway.wire.exchange import Carrier
from gateway.wire.messages import RequestHead

COUNTED_BY_CONNECTION_BYTES = 64 * 1024  # smaller bodies are bounded by the limits of streams and connections
OCTET_STREAM = "application/octet-stream"  # RFC 9110 8.3: the type of a body without one
_CONTENT_TYPE = istr("Content-Type")  # the look-up of an istr takes half the time of a plain text


# The result of a handler: a response, one that is completed later, or a coroutine, for a request that must wait. A
# pending one may end with a coroutine: the rest of the request needs a task.
Handled = Response | Pending[Any] | Coroutine[Any, Any, Response]


async def response_of(handled: Handled) -> Response:
    """Waits for a response. Raises what the handler raises."""
    while not isinstance(handled, Response):
        handled = await handled
    return handled


def give_up(handled: Handled | None) -> None:
    """Ends what a handler has returned, for a client that has left or lost its right. Queued records are stored."""
    if isinstance(handled, Pending):
        handled.cancel()
    elif isinstance(handled, Coroutine):
        handled.close()


class Route(NamedTuple):
    """A route. `path` has names in braces; `operation` is a bounded name for metrics; `need` is that of its caller.

    The handler takes a request and the `context`.
    """

    method: str
    path: str
    operation: str
    need: Need
    handler: Callable[[Request, Any], Handled]
    context: object = None


class AuditedChange(Protocol):
    """The part of the audit trail for a request that changes something (gateway/audit/trail.py)."""

    async def intend(self, before: object, after: object, name: str | None) -> None: ...


class Request:
    """One request, and what it holds.

    `names` are the values of the names in the path of its route, decoded. `parsed`: what its handler makes of the
    head, if that is known. `body`: all of it, as it was sent, if it came with the head; None: `content` is read.
    `began`: when it came, by `time.perf_counter`. `held_bytes` are those of its body, of these `connection_bytes` count
    by connection; `reserved_bytes` are those of its answer. `topics_read` are those that its body names, whose
    records it waits for or whose positions it commits. `extra_headers` are those of any answer to it: those for a
    browser, and those of quotas. `charges` are the quotas that it debits, of them `debited_bytes` for its body; `meter`
    debits a body without a length, `topic_meter` one that names topics. `is_counted_poll`: it counts as a long poll of
    its owners. `change`: of the audit trail. `space`: the names of its tenant; None: it is of none.
    `stored_records` are those that it has stored for a tenant. `trace` is the context that it names, `span` its own
    span, if it is sampled.
    """

    __slots__ = (
        "_stream_starter",
        "began",
        "body",
        "caller",
        "change",
        "charges",
        "connection",
        "connection_bytes",
        "content",
        "debited_bytes",
        "extra_headers",
        "head",
        "headers",
        "held_bytes",
        "http",
        "id",
        "is_counted_poll",
        "meter",
        "names",
        "parsed",
        "reserved_bytes",
        "route",
        "space",
        "span",
        "stored_records",
        "topic_meter",
        "topics_read",
        "trace",
    )  # fmt: skip

    change: AuditedChange

    def __init__(
        self,
        http: HttpContext,
        head: RequestHead,
        route: Route,
        names: Mapping[str, str],
        headers: CIMultiDictProxy[str],
        connection: Carrier,
        body: bytes | None = None,
        content: Body | None = None,
        parsed: Any = None,
    ) -> None:
        self.http = http
        self.head = head
        self.route = route
        self.names = names
        self.headers = headers
        self.connection = connection
        self.body = body
        self.content = content
        self.parsed = parsed
        self._stream_starter: Callable[[dict[str, str]], Stream] | None = None
        self.id = ""
        self.caller: Caller = ANONYMOUS
        self.space: Names | None = None
        self.topics_read: Collection[str] = ()
        self.extra_headers: dict[str, str] | None = None
        self.began = 0.0
        self.charges: Charges | None = None
        self.meter: BodyMeter | None = None
        self.topic_meter: TopicMeter | None = None
        self.is_counted_poll = False
        self.trace: TraceContext | None = None
        self.span: Span | None = None
        self.held_bytes = self.connection_bytes = self.reserved_bytes = self.debited_bytes = self.stored_records = 0

    def __repr__(self) -> str:
        return f"Request({self.method} {self.path})"

    @property
    def method(self) -> str:
        return self.head.method

    @property
    def path(self) -> str:
        """The path as it was sent."""
        return self.head.path

    @property
    def query(self) -> str:
        """The query as it was sent."""
        return self.head.query

    @property
    def version(self) -> str:
        """1.0, 1.1 or 2."""
        return self.head.version

    @property
    def content_length(self) -> int | None:
        return self.head.content_length

    @property
    def answer_headers(self) -> dict[str, str]:
        """The headers of any answer to it."""
        headers = {REQUEST_ID_HEADER: self.id}
        return headers if self.extra_headers is None else headers | self.extra_headers

    def has_arrived(self) -> bool:
        """Returns whether all of the body has arrived, whether it was read or not."""
        return self.content is None or self.content.is_eof()

    def allow_stream(self, starter: Callable[[dict[str, str]], Stream]) -> None:
        """Allows the handler to answer with a stream: it has a task."""
        self._stream_starter = starter

    def begin_stream(self, headers: dict[str, str]) -> Stream:
        """Begins an answer that the handler writes until it ends."""
        assert self._stream_starter is not None, "a request that is answered without a task has no stream"
        return self._stream_starter(headers)

    @property
    def content_type(self) -> str:
        """The media type of the body, in lower case, without parameters."""
        return media_type_of(self.headers.get(_CONTENT_TYPE)).name

    @property
    def charset(self) -> str | None:
        return media_type_of(self.headers.get(_CONTENT_TYPE)).charset

    @property
    def is_audited(self) -> bool:
        """Whether a trail takes what `intend` is given, so that a handler looks for the state before."""
        return getattr(self, "change", None) is not None

    async def intend(self, *, before: object = None, after: object = None, name: str | None = None) -> None:
        """Announces a change when all of it is checked and nothing is done: it is in the audit trail on return.

        `before`, `after`: what the trail shows, without secrets. `name`: of the resource, if the path has none. No-op
        without a trail. Raises EngineError audit_unavailable.
        """
        if (change := getattr(self, "change", None)) is not None:
            await change.intend(before, after, name)

    @property
    def client(self) -> str:
        """The other end of its connection, as `host:port`."""
        return self.connection.client


class BodyMeter(Protocol):
    """Counts a body that is being received."""

    async def take(self, size_bytes: int) -> None:
        """Counts a piece. Raises Problem if no more of it is to be read."""


class MediaType(NamedTuple):
    """A media type without its other parameters."""

    name: str
    charset: str | None = None


@lru_cache(maxsize=64)
def media_type_of(text: str | None) -> MediaType:
    """Parses a Content-Type. One that is not of the form `type/subtype` counts as none."""
    if text is None:
        return MediaType(OCTET_STREAM)
    message = HeaderParser(EmailMessage, policy=HTTP).parsestr(f"Content-Type: {text}")
    name = message.get("Content-Type", "").lower().partition(";")[0].strip()
    parameters: list[tuple[str, str]] = message.get_params([])
    return MediaType(name if name.count("/") == 1 else OCTET_STREAM, dict(parameters[1:]).get("charset"))


@dataclass(frozen=True, slots=True)
class HttpContext:
    """The dependencies of reading a request and writing a response, for every route.

    `count_response` takes the request and the bytes of a response that its client has yet to take. It raises Problem
    overloaded or too_many_requests if there is no room for the response.
    """

    request_body_bytes_max: int
    query_value_chars_max: int
    compress_bytes_min: int
    bodies: RequestBodies
    offload: Offload
    count_response: Callable[[Request, int], None]


class RequestBodies:
    """The bodies of a process. `held_bytes` is the sum over requests that are not answered yet.

    `recheck` checks a caller again: a body may come minutes after its head, and its right may have ended. It raises
    Problem.
    """

    def __init__(
        self, bytes_max: int, connection_bytes_max: int, offload: Offload, recheck: Callable[[Request], None]
    ) -> None:
        self.held_bytes = 0
        self._bytes_max = bytes_max
        self._connection_bytes_max = connection_bytes_max
        self._offload = offload
        self._recheck = recheck
        self._by_connection: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"RequestBodies(held_bytes={self.held_bytes}, large_connections={len(self._by_connection)})"

    @property
    def has_room(self) -> bool:
        """Returns whether more bytes may be held. A protocol that can stop reading asks before it reads."""
        return self.held_bytes < self._bytes_max

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each gauge."""
        yield "penstock_request_bytes_in_flight", "Bytes of the bodies of requests in flight", self.held_bytes

    async def read(self, request: Request, limit: int, on_received: Callable[[], None] | None = None) -> bytes:
        """Returns the body, unpacked. Calls `on_received` once it has arrived, before it is unpacked.

        Raises Problem body_too_large, unsupported_encoding, invalid_body, overloaded, too_many_requests, unauthorized,
        forbidden.
        """
        announced = request.content_length
        if announced is not None and announced > limit:
            raise _too_large(limit)
        encoding = IDENTITY
        if "Content-Encoding" in request.headers:
            encoding = check_encoding(request.headers["Content-Encoding"])
        body = await self._read_up_to(request, limit)
        if on_received is not None:
            on_received()
        self._recheck(request)
        if encoding == IDENTITY or not body:
            return body
        try:
            unpacked = await decode_body(encoding, body, limit, self._offload)
        except DoesNotFit:
            raise _too_large(limit) from None
        self.hold(request, len(unpacked))
        return unpacked

    def read_now(self, request: Request, limit: int) -> bytes:
        """Returns a body that came with its head, and is not packed.

        Raises Problem body_too_large, overloaded, too_many_requests.
        """
        body = request.body
        assert body is not None, request
        size_bytes = len(body)
        if size_bytes > limit:
            raise _too_large(limit)
        if size_bytes < COUNTED_BY_CONNECTION_BYTES and self.held_bytes + size_bytes <= self._bytes_max:
            self.held_bytes += size_bytes
            request.held_bytes += size_bytes
        else:
            self.hold(request, size_bytes)
        return body

    def hold(self, request: Request, size_bytes: int) -> None:
        """Counts bytes that a request holds. Raises Problem overloaded, too_many_requests."""
        self.held_bytes += size_bytes
        request.held_bytes += size_bytes
        is_large = request.held_bytes >= COUNTED_BY_CONNECTION_BYTES
        if is_large:
            client = request.client
            others = self._by_connection.get(client, 0) - request.connection_bytes
            self._by_connection[client] = others + request.held_bytes
            request.connection_bytes = request.held_bytes
        if self.held_bytes > self._bytes_max:
            raise Problem("overloaded", "the bodies of requests under way fill the room for them")
        if is_large and self._by_connection[client] > self._connection_bytes_max:
            text = "requests under way on this connection hold too many bytes"
            raise Problem("too_many_requests", text, limit=self._connection_bytes_max)

    def release(self, request: Request) -> None:
        """Stops counting what a request holds. No-op for a request without a body."""
        self.held_bytes -= request.held_bytes
        if request.connection_bytes:
            left = self._by_connection[request.client] - request.connection_bytes
            if left:
                self._by_connection[request.client] = left
            else:
                del self._by_connection[request.client]
        request.held_bytes = request.connection_bytes = 0

    async def _read_up_to(self, request: Request, limit: int) -> bytes:
        if request.body is not None:
            return self.read_now(request, limit)
        content, meter = request.content, request.meter
        assert content is not None, request
        first = await content.readany()
        self.hold(request, len(first))
        if meter is not None:
            await meter.take(len(first))
        size, chunks = len(first), [first]
        while not content.is_eof() and (chunk := await content.readany()):
            self.hold(request, len(chunk))
            if meter is not None:
                await meter.take(len(chunk))
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            chunks.append(chunk)
        if size > limit:
            raise _too_large(limit)
        return first if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit: int) -> Problem:
    return Problem("body_too_large", f"a body may have {limit} bytes, unpacked too", limit=limit)
