"""HTTP/2 of one connection, the server's side (RFC 9113): bytes in, events and bytes out. No I/O, no clock.

Feed `receive`, act on its events, answer with `answer` or `begin`, `write` and `finish`, and send what `take_output`
returns. Invariants: (1) no event of a stream follows its `StreamReset`, and no `BodyEnded` comes for a body that is
shorter than announced; (2) no input makes `receive` raise: faults of a stream reset it, faults of the connection end it
with GOAWAY and set `is_closing`; (3) `FloodGuard` bounds useless work that a client causes; windows and `limits` bound
memory.
Known limit: priorities are read and ignored (RFC 9113 5.3.2); DATA frames go round the streams in turn.
"""

from __future__ import annotations

import logging

from gateway.wire import frames
from gateway.wire.frames import END_STREAM, Buffer, ConnectionFault, FloodGuard, FrameReader, StreamFault, frame
from gateway.wire.heads import HeadReader
from gateway.wire.http2_sending import Piece, Sender, SendingSide
from gateway.wire.http2_streams import CONNECTION_WINDOW, ReceiveWindow, Stream, Streams, first_frames
from gateway.wire.messages import (
    AnswerForm,
    BodyPart,
    Event,
    Header,
    HeadRejected,
    RequestBegan,
    StreamReset,
    WireLimits,
    end_body,
)

log = logging.getLogger("penstock.gateway")

EFFORT_MAX = 256  # frames of a portion: one takes 5 µs, so that others wait for a millisecond or two
EFFORT_BYTES = 128  # of a header block, which take as long as a frame
LEAVE_PING = b"goodbye!"  # its answer shows that the client has seen the GOAWAY before it

_new = tuple.__new__  # of a value without a frame for it


class Http2(SendingSide):
    """`is_closing`: once what `take_output` returns is sent, the connection is to be closed.

    A stream that `is_waiting` has some of the pending bytes.
    """

    def __init__(self, limits: WireLimits) -> None:
        self.is_closing = False
        self.has_fault = False  # the client may still be sending, and its bytes are dropped
        self._reader = FrameReader(limits.header_bytes_max)
        self._heads = HeadReader(limits.header_bytes_max, limits.headers_max)
        self._streams = Streams(limits)
        self._open = self._streams.open
        self.release = self._streams.release
        self._window = ReceiveWindow(CONNECTION_WINDOW)
        self._is_leaving = False  # GOAWAY is sent once no stream is open
        self._is_ending = False  # GOAWAY is sent, and the connection closes once no stream is open
        self._has_announced = self._is_last = False  # last: no more streams are answered
        self._has_rest = False  # more was received than one portion
        self._sender = Sender(limits.unsent_bytes_max)
        self._send, self._queue = self._sender.send, self._sender.queue
        self._cancels, self._efforts = FloodGuard("reset streams"), FloodGuard("frames without use")
        self._events: list[Event] = []
        self._began: dict[int, int] = {}  # streams of this portion, and the places of their events
        self._send(first_frames(limits))
        self._on = (self._on_data, self._on_headers, self._on_priority, self._on_reset, self._on_settings,
                    self._on_goaway, self._on_ping, self._on_goaway, self._on_window_update)  # fmt: skip

    def __repr__(self) -> str:
        return f"Http2({self._streams}, pending_bytes={self.pending_bytes})"

    @property
    def is_between(self) -> bool:
        """Returns whether no request is under way, and another process can go on."""
        return not (self._open or self.pending_bytes or self._is_leaving or self.is_closing or self._heads.has_resized)

    def receive(self, data: Buffer, now: float) -> list[Event]:
        """Returns the events of one portion of what has come, in their order. `now` is of a monotonic clock, in s."""
        if self.is_closing:
            return []
        self._now, self._events, self._began = now, [], {}
        effort = EFFORT_MAX
        try:
            if data:
                self._reader.feed(data)
            while effort > 0 and not self.is_closing and (one := self._reader.next()) is not None:
                self._on_frame(*one)
                effort -= 1 if one[0] == frames.DATA else 1 + len(one[3]) // EFFORT_BYTES
        except ConnectionFault as fault:
            self._fail(fault)
        except Exception:
            log.exception("the bytes of a connection cannot be handled")
            self._fail(ConnectionFault(frames.INTERNAL_ERROR, "the server failed"))
        self._reader.keep()
        self._has_rest = effort <= 0
        events, self._events = self._events, []
        return events

    @property
    def held_bytes(self) -> int:
        """Returns the bytes for which `receive` is to be called again, with nothing."""
        return self._reader.unread_bytes if self._has_rest and not self.is_closing else 0

    def hold(self, data: Buffer) -> None:
        """Takes bytes that are parsed later."""
        self._reader.feed(data)
        self._reader.keep()
        self._has_rest = True

    def end_of_input(self) -> list[Event]:
        """Ends all requests: the client has left."""
        self.is_closing = True
        return [StreamReset(stream_id) for stream_id in self._open]

    def _on_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        try:
            if kind < len(self._on):
                self._on[kind](flags, stream_id, payload)
            else:
                self._efforts.spend(self._now)
            return
        except StreamFault as fault:
            code = fault.code
        except Exception as error:
            if not stream_id or isinstance(error, ConnectionFault):
                raise
            log.exception("a frame cannot be handled")
            code = frames.INTERNAL_ERROR
        if kind == frames.DATA:
            self._give_back(len(payload))
        self._cancels.spend(self._now)
        self._reset(stream_id, code)
        self._close(stream_id)

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Handles a frame of a body. Each byte of it is given back to the client's window once (RFC 9113 6.9).

        With `BodyPart` or `RequestBegan` the shell does it, for a StreamFault `_on_frame`, and here it is the rest.
        """
        size = len(payload)
        if not self._window.takes(size):
            raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "more than the window of the connection")
        stream = self._open.get(stream_id) or self._streams.known(stream_id)
        if stream is None and self._streams.was_reset_here(stream_id):
            self._give_back(size)
            return
        if stream is None or not stream.is_remote_open:
            raise StreamFault(stream_id, frames.STREAM_CLOSED)
        if not stream.takes(size):
            raise StreamFault(stream_id, frames.FLOW_CONTROL_ERROR)
        data = frames.without_padding(flags, payload) if flags & frames.PADDED else payload
        stream.received += len(data)
        if data and stream.announced is not None and stream.received > stream.announced:
            raise StreamFault(stream_id, frames.PROTOCOL_ERROR)
        if stream.is_stopped:  # no application reads it
            data = b""
        if flags & END_STREAM:
            self._end_body(stream, data)
        elif data:
            self._events.append(_new(BodyPart, (stream_id, data)))
        elif not stream.is_stopped:
            self._efforts.spend(self._now)
        if len(data) < size:
            self.consumed(stream_id, size - len(data))

    def _on_headers(self, flags: int, stream_id: int, block: bytes) -> None:
        """Handles a whole header block. It is always decoded, so that the table stays in step."""
        is_last = bool(flags & END_STREAM)
        if stream_id <= self._streams.last_id:
            self._on_trailers(stream_id, self._heads.are_trailers(block) and is_last)
            return
        self._streams.last_id = stream_id
        head = self._heads.read(stream_id, block)
        head_bytes = 0 if head is None else head.size_bytes
        if self._is_last or not self._streams.has_room(head_bytes):
            raise StreamFault(stream_id, frames.REFUSED_STREAM)
        if head is None:
            self._reject(stream_id, 431, is_last)
            return
        if is_last and head.content_length:
            raise StreamFault(stream_id, frames.PROTOCOL_ERROR)
        stream = Stream(stream_id, self._queue.first_window, head.content_length)
        stream.is_remote_open = not is_last
        self._streams.begin(stream, head_bytes)
        self._began[stream_id] = len(self._events)
        self._events.append(_new(RequestBegan, (stream_id, head, is_last, b"")))

    def _on_trailers(self, stream_id: int, are_right: bool) -> None:
        stream = self._open.get(stream_id)
        if stream is None:
            if self._streams.was_reset_here(stream_id):
                return
            raise ConnectionFault(frames.STREAM_CLOSED, "headers on a stream that is closed")
        if not stream.is_remote_open:
            raise StreamFault(stream_id, frames.STREAM_CLOSED)
        if not are_right:
            raise StreamFault(stream_id, frames.PROTOCOL_ERROR)
        self._end_body(stream)

    def _end_body(self, stream: Stream, data: bytes = b"") -> None:
        if stream.announced is not None and stream.received != stream.announced:
            raise StreamFault(stream.stream_id, frames.PROTOCOL_ERROR)
        stream.is_remote_open = False
        at = self._began.get(stream.stream_id, -1) if stream.received == len(data) else -1
        end_body(self._events, stream.stream_id, data, at)
        if not stream.is_local_open:
            self._forget(stream)

    def _on_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._efforts.spend(self._now)
        frames.check_priority(stream_id, payload)

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._streams.known(stream_id)
        self._cancels.spend(self._now)
        self._close(stream_id)

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & frames.ACK:
            return
        self._efforts.spend(self._now)
        self._sender.apply(payload, self._open)

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not flags & frames.ACK:
            self._efforts.spend(self._now)
            self._send(frame(frames.PING, frames.ACK, 0, payload))
        elif self._is_ending and payload == LEAVE_PING:
            self._answer_no_more()

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._efforts.spend(self._now)

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        increment = frames.WORD.unpack(payload)[0] & frames.WINDOW_MAX
        if stream_id == 0:
            self._queue.widen(increment)
        elif (stream := self._streams.known(stream_id)) is not None:
            self._queue.widen_stream(stream, increment)

    def is_waiting(self, stream_id: int) -> bool:
        return bool((stream := self._open.get(stream_id)) and stream.pieces)

    def take_output(self, budget_bytes: int) -> list[Piece]:
        """Returns the frames to send, with about so many bytes of answers."""
        out = self._sender.take()
        if self._queue.is_ready:
            data, ended = self._queue.take(budget_bytes)
            for stream in ended:
                self._end_answer(stream)
            out = [*out, *data, *self._sender.take()]
        return out

    def send_continue(self, stream_id: int) -> None:
        if stream_id in self._open:
            self._sender.send_headers(stream_id, 0, 100)

    def answer(self, stream_id: int, status: int, headers: list[Header], body: Piece) -> None:
        stream = self._open.get(stream_id)
        if stream is None:
            return
        self._sender.send_headers(stream_id, 0 if body else END_STREAM, status, headers)
        if not body or self._sender.send_data(stream, body, ends=True):
            self._end_answer(stream)

    def answer_as(self, stream_id: int, form: AnswerForm, value: bytes, date: Header, body: bytes) -> None:
        stream = self._open.get(stream_id)
        if stream is not None and self._sender.send_whole(stream, form, value, date, body):
            self._end_answer(stream)
        else:
            self.answer(stream_id, form.status, form.headers(value, len(body), date), body)

    def begin(self, stream_id: int, status: int, headers: list[Header]) -> None:
        if stream_id in self._open:
            self._sender.send_headers(stream_id, 0, status, headers)

    def write(self, stream_id: int, data: Piece) -> None:
        if data and (stream := self._open.get(stream_id)) is not None:
            self._sender.send_data(stream, data, ends=False)

    def finish(self, stream_id: int) -> None:
        if (stream := self._open.get(stream_id)) is not None and self._sender.send_data(stream, b"", ends=True):
            self._end_answer(stream)

    def stop_body(self, stream_id: int) -> None:
        """Rejects the rest of a body: resets the stream once its answer is sent whole (RFC 9113 8.1)."""
        if (stream := self._open.get(stream_id)) is not None and stream.is_remote_open:
            stream.is_stopped = True
            if not stream.is_local_open:
                self._end_answer(stream)

    def abandon(self, stream_id: int) -> None:
        if stream_id in self._open:
            self._reset(stream_id, frames.INTERNAL_ERROR)
            self._forget(self._open[stream_id])

    def consumed(self, stream_id: int, size_bytes: int) -> None:
        """Widens the client's window by the bytes that were read, in large steps."""
        self._give_back(size_bytes)
        stream = self._open.get(stream_id)
        if stream is not None and stream.is_remote_open and (step := stream.widened(size_bytes)):
            self._send(frames.window_update(stream_id, step))

    def _give_back(self, size_bytes: int) -> None:
        if step := self._window.widened(size_bytes):
            self._send(frames.window_update(0, step))

    def ping(self) -> None:
        self._send(frame(frames.PING, 0, 0, b"penstock"))

    def announce_leave(self) -> None:
        """Sends GOAWAY once no stream is open: some clients (h2 for Python) lose their open streams with it."""
        self._is_leaving = True
        self._send_goaway()

    def leave(self) -> None:
        """Ends the connection after the last open stream (RFC 9113 6.8). Streams that cross the GOAWAY are answered.

        Once the client has seen it, a second GOAWAY names the last stream; later ones are refused, and safe to retry.
        """
        if self._is_ending or self.is_closing:
            return
        self._is_leaving = self._is_ending = True
        if self._open:
            self._announce()
            self._send(frame(frames.PING, 0, 0, LEAVE_PING))
        self._send_goaway()

    def _announce(self) -> None:
        if not self._has_announced:
            self._has_announced = True
            self._send(frames.goaway(frames.STREAM_ID_MAX, frames.NO_ERROR))

    def _answer_no_more(self) -> None:
        if not self._is_last:
            self._is_last = True
            self._send(frames.goaway(self._streams.last_id, frames.NO_ERROR))

    def _send_goaway(self) -> None:
        if self._open or self.is_closing:
            return
        if self._is_ending:
            self._answer_no_more()
            self.is_closing = True
        else:
            self._announce()

    def _reject(self, stream_id: int, status: int, is_complete: bool) -> None:
        stream = self._open[stream_id] = Stream(stream_id, self._queue.first_window, None)
        stream.is_remote_open = stream.is_stopped = not is_complete
        self._cancels.spend(self._now)
        self._events.append(HeadRejected(stream_id, status))

    def _end_answer(self, stream: Stream) -> None:
        stream.is_local_open = False
        if stream.is_remote_open and stream.is_stopped:
            self._reset(stream.stream_id, frames.NO_ERROR)
        if not stream.is_remote_open or stream.is_stopped:
            self._forget(stream)

    def _reset(self, stream_id: int, code: int) -> None:
        self._send(frames.reset(stream_id, code))
        self._streams.record_reset(stream_id)

    def _close(self, stream_id: int) -> None:
        """Removes a stream that either side has reset."""
        if (stream := self._open.get(stream_id)) is not None:
            self._forget(stream)
            self._events.append(StreamReset(stream_id))

    def close(self) -> None:
        self.is_closing = True
        self._on = ()  # type: ignore[assignment]  # methods of ours: a cycle
        self._sender.take()  # at once: the next collection of cycles may be far away
        self._sender.drop_streams(self._open)

    def _forget(self, stream: Stream) -> None:
        self._queue.drop(stream)
        del self._open[stream.stream_id]
        if self._is_leaving:
            self._send_goaway()

    def _fail(self, fault: ConnectionFault) -> None:
        self._events += [StreamReset(stream_id) for stream_id in self._open]
        self._sender.drop_streams(self._open)
        self._send(frames.goaway(self._streams.last_id, fault.code, str(fault)))
        self.is_closing = self.has_fault = True
