"""The sending half of an HTTP/2 connection: frames in their order, header blocks, and data as windows allow.

It knows only the windows of streams (gateway/wire/http2_streams.py); gateway/wire/http2.py decides what is sent when.
Invariants (RFC 9113 5.2): no frame of DATA is larger than the window of its stream, that of the connection and the
client's largest frame; `SendQueue.pending_bytes` is the sum of what streams wait to send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from gateway.wire import frames, hpack
from gateway.wire.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_BYTES_DEFAULT,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    ConnectionFault,
    StreamFault,
    frame,
    frame_head,
)
from gateway.wire.http2_streams import Stream
from gateway.wire.messages import AnswerForm, Header

ANSWER_FRAME_BYTES_MAX = 64 * 1024  # whatever size a client allows
TURN_BYTES = 64 * 1024  # of a stream, at least, before others have their turn: four frames of the default size

Piece = bytes | bytearray | memoryview


class SendQueue:
    """The data that waits to be sent, and the windows that it waits for."""

    def __init__(self) -> None:
        self.pending_bytes = 0
        self.left = WINDOW_DEFAULT
        self.first_window = WINDOW_DEFAULT  # of a new stream
        self.frame_bytes_max = FRAME_BYTES_DEFAULT
        self._ready: dict[int, Stream] = {}  # those with pieces and a window of their own

    def __repr__(self) -> str:
        return f"SendQueue(pending_bytes={self.pending_bytes}, left={self.left})"

    @property
    def is_ready(self) -> bool:
        return self.left > 0 and bool(self._ready)

    def set_first_window(self, size_bytes: int, streams: Iterable[Stream]) -> None:
        """Changes the windows of all streams by the difference. Raises ConnectionFault."""
        change, self.first_window = size_bytes - self.first_window, size_bytes
        for stream in streams:
            stream.send_left += change
            if stream.send_left <= 0:  # RFC 9113 6.9.2: below 0, until the client widens it
                self._ready.pop(stream.stream_id, None)
            self.widened(stream)
        if max([size_bytes, *(stream.send_left for stream in streams)]) > WINDOW_MAX:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "a window beyond all bounds")

    def fits(self, stream: Stream, size_bytes: int) -> bool:
        """Returns whether this many bytes can be sent as one frame now; then subtracts them from the windows."""
        if stream.pieces:
            return False
        if size_bytes and (
            size_bytes > self.frame_bytes_max or size_bytes > self.left or size_bytes > stream.send_left
        ):
            return False
        self.left -= size_bytes
        stream.send_left -= size_bytes
        return True

    def add(self, stream: Stream, data: bytes | bytearray | memoryview) -> None:
        if stream.pieces is None:
            stream.pieces = deque()
        stream.pieces.append(memoryview(data))
        self.pending_bytes += len(data)
        self.widened(stream)

    def widen(self, increment: int) -> None:
        """Widens the window of the connection. Raises ConnectionFault."""
        self.left += increment
        if increment == 0 or self.left > WINDOW_MAX:
            code = FLOW_CONTROL_ERROR if increment else frames.PROTOCOL_ERROR
            raise ConnectionFault(code, "a window of nothing, or beyond all bounds")

    def widen_stream(self, stream: Stream, increment: int) -> None:
        """Widens the window of a stream. Raises StreamFault."""
        if increment == 0:
            raise StreamFault(stream.stream_id, frames.PROTOCOL_ERROR)
        stream.send_left += increment
        if stream.send_left > WINDOW_MAX:
            raise StreamFault(stream.stream_id, FLOW_CONTROL_ERROR)
        self.widened(stream)

    def widened(self, stream: Stream) -> None:
        """Looks again at a stream whose window may be open now."""
        if stream.pieces and stream.send_left > 0:
            self._ready[stream.stream_id] = stream

    def drop(self, stream: Stream) -> None:
        """Removes all that waits on a stream."""
        self._ready.pop(stream.stream_id, None)
        if stream.pieces:
            self.pending_bytes -= sum(map(len, stream.pieces))
            stream.pieces = None

    def take(self, budget_bytes: int) -> tuple[list[bytes | memoryview], list[Stream]]:
        """Returns frames of about so many bytes, and the streams that end with them.

        Streams have turns of their share of these bytes, and of one frame where the window of the connection has no
        more for all.
        """
        taken: list[bytes | memoryview] = []
        ended: list[Stream] = []
        frames_each = -(-budget_bytes // (max(1, len(self._ready)) * self.frame_bytes_max))
        most_bytes = max(TURN_BYTES, frames_each * self.frame_bytes_max)
        while self._ready and self.left > 0 and budget_bytes > 0:
            stream_id, stream = next(iter(self._ready.items()))
            share_frames = self.left // len(self._ready) // self.frame_bytes_max
            turn_bytes = min(most_bytes, max(1, share_frames) * self.frame_bytes_max)
            del self._ready[stream_id]
            assert stream.pieces
            piece = stream.pieces[0]
            size = min(turn_bytes, self.left, stream.send_left, len(piece))
            if size == len(piece):
                stream.pieces.popleft()
            else:
                stream.pieces[0], piece = piece[size:], piece[:size]
            self.left -= size
            stream.send_left -= size
            self.pending_bytes -= size
            budget_bytes -= size
            is_last = stream.ends and not stream.pieces
            self._add_frames(taken, stream_id, piece, END_STREAM if is_last else 0)
            if is_last:
                ended.append(stream)
            self.widened(stream)  # moves to the end of the queue
        return taken, ended

    def _add_frames(self, taken: list[bytes | memoryview], stream_id: int, piece: memoryview, flags: int) -> None:
        """Adds the frames of a piece, `flags` to the last of them."""
        largest, size = self.frame_bytes_max, len(piece)
        last_at = (size - 1) // largest * largest
        if last_at:
            head = frame_head(largest, DATA, 0, stream_id)
            whole: list[bytes | memoryview] = [head] * (2 * last_at // largest)
            whole[1::2] = [piece[at : at + largest] for at in range(0, last_at, largest)]
            taken += whole
            piece = piece[last_at:]
        taken += (frame_head(size - last_at, DATA, flags, stream_id), piece)


class Sender:
    """The frames and data that were given and not taken yet."""

    def __init__(self, unsent_bytes_max: int) -> None:
        self.queue = SendQueue()
        self._unsent_bytes_max = unsent_bytes_max
        self._out: list[Piece] = []
        self._out_bytes = 0
        self._table_update = b""

    def __repr__(self) -> str:
        return f"Sender(out_bytes={self._out_bytes}, {self.queue})"

    @property
    def pending_bytes(self) -> int:
        return self.queue.pending_bytes + self._out_bytes

    @property
    def ready_bytes(self) -> int:
        """Returns the bytes that wait for no window."""
        return self._out_bytes

    @property
    def sendable_bytes(self) -> int:
        if min(self.queue.first_window, self.queue.left) <= 0:
            return 0
        return self._unsent_bytes_max

    @property
    def has_output(self) -> bool:
        return bool(self._out) or self.queue.is_ready

    def take(self) -> list[Piece]:
        """Returns the frames that wait for no window."""
        out, self._out, self._out_bytes = self._out, [], 0
        return out

    def set(self, name: int, value: int, streams: dict[int, Stream]) -> None:
        """Applies a setting of the client. Raises ConnectionFault."""
        if name == frames.INITIAL_WINDOW_SIZE:
            self.queue.set_first_window(value, streams.values())
        elif name == frames.MAX_FRAME_SIZE:
            if not FRAME_BYTES_DEFAULT <= value <= frames.FRAME_BYTES_MAX:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "a frame size that no frame has")
            self.queue.frame_bytes_max = min(value, ANSWER_FRAME_BYTES_MAX)
        elif name == frames.ENABLE_PUSH and value > 1:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "push is on or off")
        elif name == frames.HEADER_TABLE_SIZE and value < hpack.TABLE_BYTES:
            self._table_update = b"\x20"  # of size 0: the client's is smaller than by default (RFC 7541 4.2)

    def apply(self, payload: bytes, streams: dict[int, Stream]) -> None:
        """Applies and acknowledges a frame of settings of the client. Raises ConnectionFault."""
        for name, value in frames.settings_in(payload):
            self.set(name, value, streams)
        self.send(frame(frames.SETTINGS, frames.ACK, 0))

    def send(self, data: Piece) -> None:
        self._out.append(data)
        self._out_bytes += len(data)

    def drop_streams(self, streams: dict[int, Stream]) -> None:
        """Forgets all streams, and what they wait to send."""
        for stream in streams.values():
            self.queue.drop(stream)
        streams.clear()

    def send_headers(self, stream_id: int, flags: int, status: int, headers: Iterable[Header] = ()) -> None:
        """Sends a header block in as many frames as it needs."""
        block = hpack.encode(status, headers)
        if self._table_update:
            block, self._table_update = self._table_update + block, b""
        size = self.queue.frame_bytes_max
        if len(block) <= size:
            self.send(frame(frames.HEADERS, flags | END_HEADERS, stream_id, block))
            return
        self.send(frame(frames.HEADERS, flags, stream_id, block[:size]))
        for start in range(size, len(block), size):
            is_last = start + size >= len(block)
            part = block[start : start + size]
            self.send(frame(frames.CONTINUATION, END_HEADERS if is_last else 0, stream_id, part))

    def send_whole(self, stream: Stream, form: AnswerForm, value: bytes, date: Header, body: bytes) -> bool:
        """Sends an answer of a form in two frames. Returns False if it needs more, or must wait for a window."""
        if self._table_update or len(value) >= 127 or not self.queue.fits(stream, len(body)):
            return False
        block, stream_id = hpack.encode_form(form, value, len(body), date), stream.stream_id
        head = frame_head(len(block), frames.HEADERS, END_HEADERS, stream_id)
        self.send(b"".join((head, block, frame_head(len(body), DATA, END_STREAM, stream_id), body)))
        return True

    def send_data(self, stream: Stream, data: Piece, *, ends: bool) -> bool:
        """Sends the data, or queues it behind a window. Returns True if the stream's last frame is sent by now."""
        if not self.queue.fits(stream, len(data)):
            if data:
                self.queue.add(stream, data)
            stream.ends = stream.ends or ends
            return False
        self.send(frame_head(len(data), frames.DATA, END_STREAM if ends else 0, stream.stream_id))
        if data:
            self.send(data)
        return ends


class SendingSide:
    """The questions to a connection that its sending half answers."""

    _sender: Sender

    @property
    def pending_bytes(self) -> int:
        """Returns the bytes that were given and not taken by `take_output`."""
        return self._sender.pending_bytes

    @property
    def ready_bytes(self) -> int:
        """Returns those of the pending bytes that wait for no window."""
        return self._sender.ready_bytes

    @property
    def sendable_bytes(self) -> int:
        """Returns how much of a new answer may wait to be sent: none of it while a window is closed.

        An open window does not bound an answer: a client widens it while it reads.
        """
        return self._sender.sendable_bytes

    @property
    def has_output(self) -> bool:
        """Returns whether `take_output` returns anything now; pending bytes may wait for a window."""
        return self._sender.has_output
