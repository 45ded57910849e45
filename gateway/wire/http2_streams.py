"""The streams of an HTTP/2 connection as both sides' windows see them: what was received, what waits to be sent.

Flow control (RFC 9113 5.2) and nothing else. Invariants: no frame of DATA is larger than the window of its stream,
that of the connection and the client's largest frame; `pending_bytes` is the sum of what streams wait to send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from gateway.wire.frames import (
    DATA,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_BYTES_DEFAULT,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    ConnectionFault,
    frame_head,
)

STREAM_WINDOW = 4 * 1024 * 1024  # of each direction towards us: a body of 4 MB is sent without waiting for us
CONNECTION_WINDOW = 16 * 1024 * 1024
WINDOW_SHARE = 4  # a window is widened after a quarter of it is consumed: few frames, and the client seldom waits


class Stream:
    """One request and its answer. `announced` is the content-length, if there is one."""

    __slots__ = ("announced", "consumed", "ends", "is_local_open", "is_remote_open", "is_stopped", "pieces",
                 "receive_left", "received", "send_left", "stream_id")  # fmt: skip

    def __init__(self, stream_id: int, send_left: int, announced: int | None) -> None:
        self.stream_id = stream_id
        self.announced = announced
        self.received = 0
        self.receive_left = STREAM_WINDOW
        self.consumed = 0
        self.send_left = send_left
        self.pieces: deque[memoryview] | None = None  # data that waits for a window
        self.ends = False  # behind the pieces
        self.is_local_open = True
        self.is_remote_open = True
        self.is_stopped = False  # the rest of its body is rejected once its answer is sent

    def __repr__(self) -> str:
        return f"Stream({self.stream_id}, received={self.received}, send_left={self.send_left})"


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
        if size_bytes > self.frame_bytes_max or size_bytes > max(0, min(self.left, stream.send_left)):
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
        """Returns frames of about so many bytes, one a stream in turn, and the streams that end with them."""
        frames: list[bytes | memoryview] = []
        ended: list[Stream] = []
        while self._ready and self.left > 0 and budget_bytes > 0:
            stream_id, stream = next(iter(self._ready.items()))
            del self._ready[stream_id]
            assert stream.pieces
            size = min(self.frame_bytes_max, self.left, stream.send_left, len(stream.pieces[0]))
            piece = stream.pieces[0][:size]
            if size == len(stream.pieces[0]):
                stream.pieces.popleft()
            else:
                stream.pieces[0] = stream.pieces[0][size:]
            self.left -= size
            stream.send_left -= size
            self.pending_bytes -= size
            budget_bytes -= size
            is_last = stream.ends and not stream.pieces
            frames += (frame_head(size, DATA, END_STREAM if is_last else 0, stream_id), piece)
            if is_last:
                ended.append(stream)
            self.widened(stream)  # moves to the end of the queue
        return frames, ended
