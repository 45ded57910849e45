"""Calls between processes: a name, small arguments, a payload; a reply or an error.

Processes of one node use Unix sockets, nodes use connections that gateway/links/internal_link.py makes. Both ends trust
each other. gateway/links/frames.py has the frames; arguments are MessagePack, payloads are raw bytes, so that a batch
is not decoded on its way. Each handler has the type of its arguments, and they are decoded here, before it is called.
Most are structs in array form: a newer version appends fields, an older one ignores them.
A call that is made for a span follows a frame with the context of that span, and has a span of its own, its child.
All frames of a turn of the loop leave in one write, so that the other process wakes up once for them and appends their
batches in one group.
Invariants: (1) the payload bytes under way on a link are bounded, and beyond that a call is rejected at once; (2) a
call ends at its deadline, when its caller is cancelled (the other side is notified) or when the link is lost, never
later; (3) a slow reply delays no other one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from engine.errors import EngineError
from engine.runtime.loop_waits import loop_waits
from engine.runtime.tasks import in_background
from gateway.http.problems import KINDS, Problem
from gateway.links.frames import CALL, CANCEL, FAILURE, REPLY, TRACE, Frame, FrameReader, encode_frame
from gateway.tracing.current import current
from gateway.tracing.span import INTERNAL, Span
from gateway.tracing.trace_context import parse_traceparent

A = TypeVar("A")
Answer = tuple[object, bytes | bytearray]  # the result and its payload

BYTES_IN_FLIGHT_MAX = 128 * 1024 * 1024  # at most half of the bytes that wait for the disk (append_queue_bytes_max)

SEND_BUFFER_BYTES = 1024 * 1024  # of the kernel: an answer of the usual size goes with one wake-up of each process
_JOINED_BYTES_MAX = 64 * 1024  # small frames are joined for one buffer; larger payloads are not copied

_call_of = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw]).decode
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

log = logging.getLogger("penstock.link")


class Busy(EngineError):
    """The other process is overloaded. Retry after a moment."""

    code = "overloaded"
    retryable = True


class LinkDown(Busy):
    """The other process cannot be reached now, so nothing was sent. In a cluster another one may take over."""


class LinkLost(EngineError):
    """The link was lost during the call: whether the call took effect is unknown."""

    code = "ack_timeout"
    retryable = True
    no_side_effects = False


class RemoteFailure(EngineError):
    """The error that the other process raised, word for word."""

    def __init__(
        self, code: str, detail: str, retryable: bool, no_side_effects: bool, members: Mapping[str, object], *_: object
    ) -> None:
        super().__init__(detail)
        self.members = dict(members)
        self.code, self.retryable, self.no_side_effects = code, retryable, no_side_effects  # type: ignore[misc]


class MalformedCall(EngineError):
    """The call or its arguments are unknown to this process: the other one may be of another version."""


class Handler(NamedTuple):
    """The type of a call's arguments, their decoder, and the function that is given them and the payload.

    `begin` is given the same, and serves calls that need no task: it returns the future of their result, which may be
    cancelled; None for a call that `function` has to serve.
    """

    kind: Any
    decode: Callable[[msgspec.Raw], Any]
    function: Callable[[Any, bytes], Awaitable[Answer]]
    begin: Callable[[Any, bytes], asyncio.Future[Any] | None] | None = None


def handler(
    kind: type[A],
    function: Callable[[A, bytes], Awaitable[Answer]],
    begin: Callable[[A, bytes], asyncio.Future[Any] | None] | None = None,
) -> Handler:
    """Returns a handler whose functions take arguments of the type."""
    return Handler(kind, msgspec.msgpack.Decoder(kind).decode, function, begin)


class Link(asyncio.BufferedProtocol):
    """One end of a connection; both ends may call. Handlers are given at construction."""

    def __init__(self, handlers: Mapping[str, Handler], on_lost: Callable[[Link], None] | None = None) -> None:
        self._handlers = handlers
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._outgoing: list[bytes | bytearray] = []  # of this turn of the loop
        self._outgoing_bytes = 0
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[tuple[Any, bytes]]] = {}
        self._serving: dict[int, asyncio.Future[Any]] = {}
        self._unstarted: set[int] = set()  # those of them whose tasks have not run yet
        self._traceparent = ""  # of the next call
        self.bytes_in_flight = 0

    def __repr__(self) -> str:
        return f"Link(calls={len(self._calls)}, serving={len(self._serving)}, bytes={self.bytes_in_flight})"

    @property
    def is_up(self) -> bool:
        return self._transport is not None

    @property
    def is_serving(self) -> bool:
        """True if the other side waits for replies."""
        return bool(self._serving)

    def begin(
        self, name: str, arguments: object, payload: bytes | bytearray = b""
    ) -> asyncio.Future[tuple[Any, bytes]]:
        """Sends a call at the end of this turn of the loop; calls keep their order.

        Cancelling the future cancels the call on the other side.
        Raises Busy when too much is under way, LinkDown when there is no link: then nothing was sent.
        """
        if self._transport is None:
            raise LinkDown("the process that owns the partition is restarting")
        if self.bytes_in_flight and self.bytes_in_flight + len(payload) > BYTES_IN_FLIGHT_MAX:
            raise Busy("too many bytes are on their way to the process that owns the partition")
        number = next(self._numbers)
        future: asyncio.Future[tuple[Any, bytes]] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        self.bytes_in_flight += len(payload)
        future.add_done_callback(lambda done: self._end_call(number, len(payload), done))
        if current.span is not None:
            self._send(TRACE, 0, current.span.context.traceparent)
        self._send(CALL, number, (name, arguments), payload)
        return future

    async def call(
        self, name: str, arguments: object, payload: bytes | bytearray = b"", *, timeout_s: float
    ) -> tuple[Any, bytes]:
        """Calls and waits for the reply. Raises the other side's error, Busy, LinkLost."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            return await loop_waits().deadlines.wait_until(deadline, self.begin(name, arguments, payload))
        except TimeoutError:
            raise LinkLost(f"no reply to {name} within {timeout_s:g} s") from None

    def close(self) -> None:
        if self._transport is not None:
            self._flush()
            self._transport.close()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        end: socket.socket | None = transport.get_extra_info("socket")
        if end is not None:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        wakeups = loop_waits().polls
        for serving in list(self._serving.values()):
            wakeups.wake(_cancel, serving)
        for future in list(self._calls.values()):
            wakeups.wake(_fail_lost, future)
        if self._on_lost is not None:
            self._on_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.free()

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._reader.receive(nbytes):
            self._dispatch(frame)

    def data_received(self, data: bytes) -> None:
        """Takes bytes that were read before the connection became a link."""
        left = memoryview(data)
        while left:
            room = self._reader.free()
            count = min(len(room), len(left))
            room[:count] = left[:count]
            self.buffer_updated(count)
            left = left[count:]

    def _dispatch(self, frame: Frame) -> None:
        kind, number, arguments, payload = frame
        if kind == CALL:
            if self._traceparent:
                self._serve_traced(number, *_call_of(arguments), payload)
            else:
                self._begin_to_serve(number, *_call_of(arguments), payload)
        elif kind == TRACE:
            self._traceparent = _decode(arguments) if current.tracer is not None else ""
        elif kind == CANCEL:
            self._unstarted.discard(number)
            if (serving := self._serving.pop(number, None)) is not None:
                serving.cancel()
        elif (future := self._calls.get(number)) is not None and not future.done():
            if kind == REPLY:
                future.set_result((_decode(arguments), payload))
            else:
                future.set_exception(RemoteFailure(*_decode(arguments)))

    def _serve_traced(self, number: int, name: str, arguments: msgspec.Raw, payload: bytes) -> None:
        """Serves a call that is made for a span."""
        text, self._traceparent = self._traceparent, ""
        tracer, parent, now = current.tracer, parse_traceparent(text), time.perf_counter()
        span = None if tracer is None or parent is None else tracer.begin(name, INTERNAL, parent, now)
        current.run(span, lambda: self._begin_to_serve(number, name, arguments, payload))
        if span is not None and (serving := self._serving.get(number)) is not None:
            serving.add_done_callback(partial(_end_span, span))
        elif span is not None:
            _end_span(span)

    def _begin_to_serve(self, number: int, name: str, arguments: msgspec.Raw, payload: bytes) -> None:
        """Begins a call now if it needs no task, and no task of an earlier call has yet to begin."""
        try:
            handler, decoded = self._decode_call(name, arguments)
            serving = None if handler.begin is None or self._unstarted else handler.begin(decoded, payload)
        except Exception as error:
            self._send_failure(number, name, error)
            return
        if serving is None:
            self._unstarted.add(number)
            work = self._serve(number, name, handler.function, decoded, payload)
            serving = in_background(work, "answering a call of another process")
        else:
            serving.add_done_callback(partial(self._send_result, number, name))
        self._serving[number] = serving

    async def _serve(
        self,
        number: int,
        name: str,
        function: Callable[[Any, bytes], Awaitable[Answer]],
        arguments: Any,
        payload: bytes,
    ) -> None:
        self._unstarted.discard(number)
        try:
            self._send(REPLY, number, *await function(arguments, payload))
        except Exception as error:
            self._send_failure(number, name, error)
        finally:
            self._serving.pop(number, None)

    def _send_result(self, number: int, name: str, serving: asyncio.Future[Any]) -> None:
        """Sends the result of a call that needed no task."""
        self._serving.pop(number, None)
        if serving.cancelled():
            return
        if (error := serving.exception()) is None:
            self._send(REPLY, number, serving.result())
        else:
            self._send_failure(number, name, error)

    def _send_failure(self, number: int, name: str, error: BaseException) -> None:
        fields: tuple[object, ...]
        if isinstance(error, EngineError):
            fields = (error.code, str(error), error.retryable, error.no_side_effects, error.members)
        elif isinstance(error, Problem):
            kind = KINDS[error.code]
            fields = (error.code, error.detail, kind.retryable, kind.no_side_effects, error.members)
        else:
            log.error("a call between processes failed", extra={"call": name}, exc_info=error)
            fields = ("internal", f"{name} failed; it has been logged", True, False, {})
        self._send(FAILURE, number, fields)

    def _decode_call(self, name: str, arguments: msgspec.Raw) -> tuple[Handler, Any]:
        """Returns the handler of a call, and its decoded arguments. Raises MalformedCall."""
        try:
            handler = self._handlers[name]
            return handler, handler.decode(arguments)
        except KeyError:
            error = MalformedCall(f"this process does not know the call {name}")
        except msgspec.ValidationError as invalid:
            error = MalformedCall(f"the arguments of the call {name} are malformed: {invalid}")
        log.error("a call of another process was rejected", extra={"call": name, "reason": str(error)})
        raise error

    def _send(self, kind: int, number: int, arguments: object, payload: bytes | bytearray = b"") -> None:
        if self._transport is None:
            return
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing += encode_frame(kind, number, _encode(arguments), payload)
        self._outgoing_bytes += len(payload)

    def _flush(self) -> None:
        """Writes the frames of this turn."""
        if self._transport is None or not self._outgoing:
            return
        pieces, self._outgoing = self._outgoing, []
        size_bytes, self._outgoing_bytes = self._outgoing_bytes, 0
        if size_bytes < _JOINED_BYTES_MAX:
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)

    def _end_call(self, number: int, size_bytes: int, future: asyncio.Future[tuple[Any, bytes]]) -> None:
        self._calls.pop(number, None)
        self.bytes_in_flight -= size_bytes
        # marks the error as retrieved: the caller may have left
        if future.cancelled() or isinstance(future.exception(), TimeoutError):
            self._send(CANCEL, number, None)


def _end_span(span: Span, serving: asyncio.Future[Any] | None = None) -> None:
    """Ends the span of a call. Without a future it was refused at once."""
    span.is_error = serving is None or serving.cancelled() or serving.exception() is not None
    if current.tracer is not None:
        current.tracer.end(span)


def _cancel(serving: asyncio.Future[Any]) -> None:
    serving.cancel()


def _fail_lost(call: asyncio.Future[tuple[Any, bytes]]) -> None:
    if not call.done():
        call.set_exception(LinkLost("the connection to the process that owns the partition was lost"))
