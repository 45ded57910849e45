"""HTTP/1.1 and 1.0 of one connection, the server's side (RFC 9112): bytes in, events and bytes out. No I/O, no clock.

llhttp, through httptools, parses the messages strictly: wrong line ends, repeated lengths, unknown transfer codings and
misplaced white space are errors. This file bounds the messages, undoes llhttp's handling of `Upgrade`, and frames
answers. Requests are numbered by 1 as the streams of HTTP/2 are, so that both cores have one interface. Invariants: (1)
`BodyEnded` comes only for a body whose framing is complete; (2) answers are given in the order of requests, which the
shell ensures; (3) no input makes `receive` raise.
"""

from __future__ import annotations

from collections import deque

import httptools

from gateway.wire.frames import Buffer
from gateway.wire.heads import KnownHeads
from gateway.wire.messages import (
    SMALL_BYTES,
    STATUS_LINES,
    AnswerForm,
    BodyCut,
    BodyPart,
    Event,
    Header,
    HeadRejected,
    RequestBegan,
    RequestHead,
    RequestLines,
    StreamReset,
    WireLimits,
    chunked,
    end_body,
    head_lines,
    head_without_upgrade,
    is_target,
    split_target,
    take_pieces,
)

_new = tuple.__new__  # of a value without a frame for it
PORTION_BYTES = 16 * 1024  # a thousand of the smallest requests, as streams of HTTP/2; a body has none in it


class Message:
    """A request of HTTP/1.1 and its answer, as far as they have come."""

    __slots__ = ("has_ended_body", "is_answered", "is_chunked", "is_stopped", "keeps_alive", "version", "waits_for_100")

    def __init__(self, version: str, keeps_alive: bool, waits_for_100: bool) -> None:
        self.version = version
        self.keeps_alive = keeps_alive
        self.waits_for_100 = waits_for_100
        self.has_ended_body = False
        self.is_chunked = False
        self.is_answered = False
        self.is_stopped = False


class Http1:
    """`is_closing`: once what `take_output` returns is sent, the connection is to be closed."""

    def __init__(self, limits: WireLimits) -> None:
        self.is_closing = False
        self.has_fault = False  # the client may still be sending, and its bytes are dropped
        self.pending_bytes = 0  # of the output that was given and not taken
        self._out: deque[bytes | bytearray | memoryview] = deque()
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._known = KnownHeads(limits.header_bytes_max)
        self._ignores_input = False  # nothing more is parsed
        self._is_between = True  # llhttp has not seen the beginning of a message
        self._is_in_head = False
        self._lines = RequestLines()
        self._head_bytes = 0  # of whole headers
        self._quiet_bytes = 0  # since something whole came: an unfinished header, a chunk's extension
        self._is_quiet = True
        self._target = b""
        self._headers: list[Header] = []
        self._is_upgrade = False
        self._has_close = False  # beside an `Upgrade` that was taken out
        self._last_id = 0
        self._body_left = 0  # bytes that are still to come of a body whose length is announced
        self._held = b""
        self._held_from = 0
        self._messages: dict[int, Message] = {}  # those that are not over
        self._is_leaving = False
        self._events: list[Event] = []

    def __repr__(self) -> str:
        return f"Http1(requests={self._last_id}, under_way={len(self._messages)}, pending_bytes={self.pending_bytes})"

    # Receiving

    def receive(self, data: Buffer, now: float) -> list[Event]:
        """Returns the events of one portion of what has come, in their order. `data` may change afterwards."""
        if self._ignores_input:
            return []
        size = max(PORTION_BYTES, self._body_left)
        if self._held or len(data) > size:
            if data:
                self.hold(data)
            data = self._held[self._held_from : self._held_from + size]
            self._held_from += size
            if self._held_from >= len(self._held):
                self._held, self._held_from = b"", 0
        self._events, self._is_quiet, head_bytes = [], True, 0
        if self._is_between and len(data) <= PORTION_BYTES:
            data = bytes(data)
            head_bytes = data.find(b"\r\n\r\n") + 4
            if self._take_known(data, head_bytes):
                return self._taken_events()
        try:
            self._feed_messages(data)
            self._quiet_bytes = self._quiet_bytes + len(data) if self._is_quiet else 0
            self._check_head()
            if head_bytes > 4:
                self._learn(data, head_bytes)
        except _Rejected as refused:
            self._reject(refused.args[0])
        except httptools.HttpParserInvalidMethodError:
            self._reject(501)
        except httptools.HttpParserError as error:
            cause = error.__context__  # our own error is the context of the parser's
            self._reject(cause.args[0] if isinstance(cause, _Rejected) else 400)
        return self._taken_events()

    def _taken_events(self) -> list[Event]:
        """Returns the events, and keeps none: an idle connection does not hold the last piece of its last body."""
        events, self._events = self._events, []
        return events

    def end_of_input(self) -> list[Event]:
        self._ignores_input = self.is_closing = True
        return [StreamReset(stream_id) for stream_id in self._messages]

    @property
    def held_bytes(self) -> int:  # for which `receive` is to be called again, with nothing
        return 0 if self._ignores_input else len(self._held) - self._held_from

    @property
    def is_between(self) -> bool:
        """Returns whether no message has begun and none is under way, and another process can go on."""
        is_over = self._ignores_input or self._is_leaving
        return self._is_between and not (self._messages or self._held or self._out or is_over)

    def hold(self, data: Buffer) -> None:
        self._held, self._held_from = self._held[self._held_from :] + data, 0

    def _take_known(self, data: bytes, head_bytes: int) -> bool:
        """Takes a request in one piece whose head is known."""
        head = self._known.find(data, head_bytes)
        if head is None or len(data) - head_bytes != (head.content_length or 0):
            return False
        self._quiet_bytes = 0
        self._last_id += 1
        message = self._messages[self._last_id] = Message(head.version, True, False)
        message.has_ended_body = True
        self._events.append(_new(RequestBegan, (self._last_id, head, True, data[head_bytes:])))
        return True

    def _learn(self, data: Buffer, head_bytes: int) -> None:
        """Keeps the head if `data` was nothing but one request, which the length of its body proves."""
        began = self._events[0] if len(self._events) == 1 and self._is_between else None
        if type(began) is RequestBegan and self._messages[self._last_id].keeps_alive:
            head, body_bytes = began.head, len(data) - head_bytes
            if body_bytes == len(began.body) == (head.content_length or 0) and not head.expects_continue:
                self._known.add(bytes(data[:head_bytes]), head)

    def _feed_messages(self, data: Buffer) -> None:
        """Feeds llhttp in pieces that end with a head, so that each request line is checked. Raises _Rejected."""
        if self._body_left >= len(data):
            self._feed(data)
            return
        data, start = bytes(data), 0
        while start < len(data):
            end = self._lines.end_of_piece(data, start, self._body_left)
            if not self._lines.takes(piece := data[start:end]):
                raise _Rejected(400)
            self._feed(piece)
            start = end

    def _feed(self, data: Buffer) -> None:
        """Feeds llhttp, which stops at an `Upgrade`: a new parser gets what was read, without that header."""
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = data[upgrade.args[0] :]
                method = self._parser.get_method().decode()
                if method == "CONNECT":
                    raise _Rejected(501) from None
                options = [value.lower() for name, value in self._headers if name.lower() == "connection"]
                self._has_close = "close" in [one.strip() for one in ",".join(options).split(",")]
                version = self._parser.get_http_version()
                self._parser = httptools.HttpRequestParser(self)
                data = head_without_upgrade(method, self._target, version, self._headers) + rest

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._is_between = self._is_quiet = self._is_upgrade = False
        self._target, self._headers, self._head_bytes = b"", [], 0

    def on_url(self, target: bytes) -> None:
        self._is_quiet = False
        self._target += target
        self._head_bytes += len(target)
        self._check_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header, or a trailer, which is ignored. Raises _Rejected."""
        self._is_quiet = False
        self._head_bytes += len(name) + len(value) + 4
        self._headers.append((name.decode("latin-1"), value.decode("utf-8", "surrogateescape")))
        if self._head_bytes > self._limits.header_bytes_max or len(self._headers) > self._limits.headers_max:
            raise _Rejected(431)

    def on_headers_complete(self) -> None:
        """Begins a request. Raises _Rejected for another version."""
        parser = self._parser
        if parser.should_upgrade():
            self._is_upgrade = True
            return
        self._is_in_head = False
        version = parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise _Rejected(505)
        if not is_target(self._target):
            raise _Rejected(400)
        authority, path, query = split_target(self._target.decode())
        head = RequestHead(version, parser.get_method().decode(), path, query, authority, tuple(self._headers))
        self._headers = []  # trailers follow
        self._last_id += 1
        waits = head.expects_continue and version == "1.1"
        is_chunked = bool(head.values_of("transfer-encoding"))
        # RFC 9112 6.1: what stands between may have read a chunked body of HTTP/1.0 otherwise. It goes no further.
        keeps_alive = parser.should_keep_alive() and not self._has_close and not (is_chunked and version == "1.0")
        self._has_close = False
        message = self._messages[self._last_id] = Message(version, keeps_alive, waits)
        self._body_left = head.content_length or 0
        has_body = bool(self._body_left) or is_chunked
        message.has_ended_body = not has_body
        self._events.append(RequestBegan(self._last_id, head, not has_body))

    def on_body(self, data: bytes) -> None:
        self._is_quiet = False
        message = self._messages.get(self._last_id)
        if message is not None:
            message.waits_for_100 = False
            self._body_left -= len(data)  # of a chunked body it is below 0
            self._events.append(BodyPart(self._last_id, data))

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            return
        self._is_between = True
        self._lines.begin()
        message = self._messages.get(self._last_id)
        if message is not None and not message.has_ended_body:
            message.has_ended_body = True
            end_body(self._events, self._last_id)
            if message.is_answered:
                self._end(self._last_id, message)

    def _check_head(self) -> None:
        size_bytes = max(self._head_bytes, self._quiet_bytes)
        if size_bytes > self._limits.header_bytes_max or len(self._headers) > self._limits.headers_max:
            raise _Rejected(431)

    def _reject(self, status: int) -> None:
        """Rejects the head: the messages behind it cannot be parsed. If a body breaks, its handler answers instead."""
        self._ignores_input = self.has_fault = True
        message = self._messages.get(self._last_id)
        last = self._events[-1] if self._events else None
        if isinstance(last, RequestBegan) and not last.is_complete:  # the rest of its body cannot be parsed
            self._events[-1] = HeadRejected(self._last_id, status)
            if message is not None:
                message.keeps_alive = False
                message.has_ended_body = True
            return
        if not self._is_in_head and message is not None and not message.has_ended_body:
            message.keeps_alive = False
            message.has_ended_body = True
            self._events.append(BodyCut(self._last_id))
            if message.is_answered:
                self._end(self._last_id, message)
            return
        if not self._is_in_head and message is not None and not message.keeps_alive:
            return  # bytes behind a request that closes the connection are ignored
        self._last_id += 1
        refused = self._messages[self._last_id] = Message("1.1", False, False)
        refused.has_ended_body = True
        self._events.append(HeadRejected(self._last_id, status))

    def close(self) -> None:
        """Frees what is held, and breaks the cycle with the parser: the next collection may be far away."""
        self._ignores_input = True
        self._parser = None  # type: ignore[assignment]
        self._held = b""
        self._out.clear()
        self.pending_bytes = 0

    # Sending

    @property
    def sendable_bytes(self) -> int:
        """Returns how much of a further answer may wait to be sent. HTTP/1.1 has no windows."""
        return self._limits.unsent_bytes_max - self.pending_bytes

    @property
    def ready_bytes(self) -> int:
        return self.pending_bytes

    @property
    def has_output(self) -> bool:
        return bool(self._out)

    def is_waiting(self, stream_id: int) -> bool:
        return bool(self._out)

    def take_output(self, budget_bytes: int) -> list[bytes | bytearray | memoryview]:
        if len(self._out) == 1 and self.pending_bytes <= budget_bytes:  # most answers are one piece
            self.pending_bytes = 0
            return [self._out.popleft()]
        taken = take_pieces(self._out, budget_bytes)
        self.pending_bytes -= sum(map(len, taken))
        return taken

    def _send(self, data: bytes | bytearray | memoryview) -> None:
        self._out.append(data)
        self.pending_bytes += len(data)

    def send_continue(self, stream_id: int) -> None:
        """Sends 100 Continue, unless the client has begun its body."""
        if (message := self._messages.get(stream_id)) is not None and message.waits_for_100:
            message.waits_for_100 = False
            self._send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def answer(self, stream_id: int, status: int, headers: list[Header], body: bytes | bytearray | memoryview) -> None:
        message = self._messages.get(stream_id)
        if message is None:
            return
        head = self._head(message, status, headers)
        if len(body) <= SMALL_BYTES:
            self._send(head + body)
        else:
            self._send(head)
            self._send(memoryview(body))
        self._end_answer(stream_id, message)

    def answer_as(self, stream_id: int, form: AnswerForm, value: bytes, date: Header, body: bytes) -> None:
        message = self._messages.get(stream_id)
        if message is None or self._is_leaving or not message.keeps_alive or message.version != "1.1":
            self.answer(stream_id, form.status, form.headers(value, len(body), date), body)
        else:  # the request was whole
            if date is not form.date:
                form.end_with(date)
            self._send(b"%b%b%b%d%b%b" % (form.start, value, form.fields, len(body), form.end, body))
            del self._messages[stream_id]

    def begin(self, stream_id: int, status: int, headers: list[Header]) -> None:
        """Begins an answer in pieces: chunked without a Content-Length; in HTTP/1.0 it ends with the connection."""
        message = self._messages.get(stream_id)
        if message is None:
            return
        if not any(name == "Content-Length" for name, _ in headers):
            message.is_chunked = message.version == "1.1"
            message.keeps_alive &= message.is_chunked
            headers = [*headers, ("Transfer-Encoding", "chunked")] if message.is_chunked else headers
        self._send(self._head(message, status, headers))

    def write(self, stream_id: int, data: bytes | bytearray) -> None:
        if data and (message := self._messages.get(stream_id)) is not None:
            for piece in chunked(data) if message.is_chunked else (memoryview(data),):
                self._send(piece)

    def finish(self, stream_id: int) -> None:
        if (message := self._messages.get(stream_id)) is not None:
            if message.is_chunked:
                self._send(b"0\r\n\r\n")
            self._end_answer(stream_id, message)

    def stop_body(self, stream_id: int) -> None:
        """Rejects the rest of a body: the connection ends once its answer is sent."""
        if (message := self._messages.get(stream_id)) is not None and not message.has_ended_body:
            message.is_stopped = self.has_fault = True
            if message.is_answered:
                self._end(stream_id, message)

    def abandon(self, stream_id: int) -> None:
        if self._messages.pop(stream_id, None) is not None:
            self._ignores_input = self.is_closing = True

    # HTTP/1.1 has no windows, no streams to count, and no ping.
    def consumed(self, stream_id: int, size_bytes: int) -> None: ...
    def release(self, stream_id: int) -> None: ...
    def ping(self) -> None: ...
    def announce_leave(self) -> None:
        """Adds `connection: close` to the next answer behind which no request waits."""
        self._is_leaving = True

    def leave(self) -> None:
        """Ends the connection after the last answer that is under way."""
        self._is_leaving = True
        if not self._messages:
            self._ignores_input = self.is_closing = True

    def _head(self, message: Message, status: int, headers: list[Header]) -> bytes:
        is_last = self._is_leaving and len(self._messages) == 1
        if is_last or message.waits_for_100:  # a client that waits for 100 may or may not send its body
            message.keeps_alive = False
        if not message.keeps_alive:
            headers = [*headers, ("Connection", "close")]
        elif message.version == "1.0":
            headers = [*headers, ("Connection", "keep-alive")]
        first = STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n"
        return f"{first}{head_lines(headers)}\r\n".encode("utf-8", "surrogateescape")

    def _end_answer(self, stream_id: int, message: Message) -> None:
        message.is_answered = True
        if message.waits_for_100:
            self.has_fault = True  # it may have begun its body just now
        if message.has_ended_body or message.is_stopped or message.waits_for_100:
            self._end(stream_id, message)

    def _end(self, stream_id: int, message: Message) -> None:
        del self._messages[stream_id]
        if not message.keeps_alive or message.is_stopped or (self._is_leaving and not self._messages):
            self._ignores_input = self.is_closing = True


class _Rejected(ValueError):
    """A head that is rejected, with its status alone."""
