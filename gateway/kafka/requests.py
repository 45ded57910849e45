"""One request of Kafka's protocol, and the client that sent it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from engine.runtime.pending import Pending
from gateway.fetch.reader import RecordWait
from gateway.http.rights import ANONYMOUS, Caller, Names
from gateway.kafka.codec.messages import Buffer, Cursor, Malformed, Message, Output, read_message, write_message
from gateway.kafka.codec.tables import TABLES
from gateway.kafka.errors import Error
from gateway.kafka.fetch_sessions import FetchSession
from gateway.quotas.charges import Charges
from gateway.tracing.span import Span

_HEAD = struct.Struct(">hhi")  # key, version, correlation id
_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")
_PLAIN_HEAD, _TAGGED_HEAD = struct.Struct(">ii"), struct.Struct(">iiB")  # length, correlation id, no tagged fields
API_VERSIONS = "ApiVersions"
CLIENT_ID_CHARS = 128  # as much as is kept for logs


class Client:
    """The client of one connection. `address` is `host:port`; `software` is what it has called itself.

    `caller` is None while it has not authenticated. `token` is the one that it has sent, `snapshot` the rules that its
    identity belongs to. `session` is that of its fetches, `polling` a fetch of it that waits for records.
    """

    __slots__ = ("address", "behind", "caller", "client_id", "expires_ms", "is_waiting", "mechanism", "polling",
                 "sends_raw_tokens", "session", "snapshot", "software", "token")  # fmt: skip

    def __init__(self, address: str, caller: Caller | None = ANONYMOUS) -> None:
        self.address = address
        self.caller = caller
        self.client_id = ""
        self.software = ""
        self.mechanism: str | None = None  # of SASL, that it has chosen
        self.sends_raw_tokens = False  # without a header: it has chosen it by version 0 of SaslHandshake
        self.expires_ms = 0  # when its token ends; 0: it does not
        self.token = ""
        self.snapshot: object = None
        self.session: FetchSession | None = None
        self.polling: RecordWait[Any] | None = None
        self.is_waiting = False  # a request has come behind the one that is under way
        self.behind: asyncio.Future[None] | None = None  # of a long poll: done once another request has come

    def __repr__(self) -> str:
        return f"Client({self.address}, {self.client_id})"

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")


class Head(NamedTuple):
    """The head of a request, and where its body begins."""

    key: int
    version: int
    correlation_id: int
    client_id: str
    body_at: int


class KafkaRequest:
    """A request: its API, its version, its message and its client.

    `error` is the first error of its answer, for counters. After an answer with `throttle_ms` nothing is read from its
    connection for that time. `space`: the names of its caller's tenant; the message has stored ones.
    """

    __slots__ = ("api", "began", "charges", "client", "correlation_id", "error", "is_of_many_topics", "message",
                 "size_bytes", "space", "span", "stored_records", "throttle_ms", "version")  # fmt: skip

    def __init__(self, api: Api, head: Head, client: Client, began: float) -> None:
        self.api = api
        self.version = head.version
        self.correlation_id = head.correlation_id
        self.client = client
        self.began = began
        self.message: Message = None
        self.charges: Charges | None = None  # the quotas that it debits
        self.error = Error.NONE
        self.throttle_ms = 0
        self.is_of_many_topics = False  # each has quotas of its own
        self.space: Names | None = None
        self.span: Span | None = None  # None: it is not sampled
        self.size_bytes = self.stored_records = 0  # for the bill of a tenant

    def __repr__(self) -> str:
        return f"KafkaRequest({self.api.name} {self.version})"

    @property
    def caller(self) -> Caller:
        assert self.client.caller is not None, self
        return self.client.caller

    @property
    def owner(self) -> str:
        """The one whose sessions are bounded together: a tenant, or a principal of no tenant."""
        return self.caller.principal if self.space is None else self.space.prefix

    def visible(self, name: str) -> str:
        """Returns a stored name as the client says it, for bytes that no table describes."""
        return name if self.space is None else self.space.visible(name)

    def note(self, error: Error) -> Error:
        """Notes an error of the answer, and returns it."""
        if error is not Error.NONE and self.error is Error.NONE:
            self.error = error
        return error


# The result of a handler: a response, None for no response at all, one that is completed later, or a coroutine, for a
# request that must wait. A coroutine may end with a pending one: then only its acknowledgement is waited for.
Handled = Message | None | Pending[Any] | Coroutine[Any, Any, Any]


Read = Callable[[int, memoryview, int], Message]  # of a version, from a position of a frame on
Write = Callable[[int, Message, Output], None]


class Api(NamedTuple):
    """An API: its versions as they are advertised, and its handler, which takes a request and the `context`.

    `read` and `write` are those of its messages, from the version `first_read` on, with tags from `flexible` on.
    `operation` is its name in counters.
    """

    name: str
    operation: str
    key: int
    first: int
    last: int
    first_read: int
    flexible: int
    handler: Callable[[KafkaRequest, Any], Handled]
    context: object
    read: Read
    write: Write


def make_api(
    name: str,
    handler: Callable[[KafkaRequest, Any], Handled],
    context: object,
    first: int | None = None,
    by_hand: tuple[Read, Write] | None = None,
) -> Api:
    """Returns an API of the tables. `first`: the version that is advertised as the first one."""
    table = TABLES[name]
    read, write = by_hand or (partial(read_message, name), partial(write_message, name))
    versions = table.first if first is None else first, table.last, table.first, table.flexible
    return Api(name, f"kafka_{name}", table.key, *versions, handler, context, read, write)


def read_head(frame: memoryview) -> Head:
    """Returns the head of a request, up to where the table of its API says what follows. Raises Malformed."""
    try:
        key, version, correlation_id = _HEAD.unpack_from(frame)
        (length,) = _I16.unpack_from(frame, _HEAD.size)
        cursor = Cursor(frame, _HEAD.size + _I16.size)
        client_id = "" if length < 0 else str(cursor.take(length), "utf-8", "replace")
    except struct.error:
        raise Malformed(f"a frame of {len(frame)} bytes has no head of a request") from None
    return Head(key, version, correlation_id, client_id[:CLIENT_ID_CHARS], cursor.position)


def body_begin(frame: memoryview, api: Api, head: Head) -> int:
    """Returns where the body begins, behind the tagged fields of the head. Raises Malformed."""
    position = head.body_at
    if head.version < api.flexible:
        return position
    if position < len(frame) and frame[position] == 0:  # no tagged field, which is usual
        return position + 1
    cursor = Cursor(frame, head.body_at)
    cursor.skip_tags()
    return cursor.position


def begin_response(request: KafkaRequest) -> Output:
    """Returns a response with its head; a client reads that of ApiVersions before it knows what the server speaks."""
    out, api = Output(), request.api
    if request.version >= api.flexible and api.name != API_VERSIONS:
        out.tail += _TAGGED_HEAD.pack(0, request.correlation_id, 0)
    else:
        out.tail += _PLAIN_HEAD.pack(0, request.correlation_id)
    return out


def finish_response(out: Output) -> list[Buffer]:
    """Writes the length of a response into its first bytes, and returns its pieces."""
    pieces = out.finished()
    first = pieces[0]
    assert isinstance(first, bytearray)
    size_bytes = len(first) if len(pieces) == 1 else sum(map(len, pieces))
    _I32.pack_into(first, 0, size_bytes - _I32.size)
    return pieces
