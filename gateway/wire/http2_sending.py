"""The sending half of an HTTP/2 connection: frames in their order, header blocks, and data as windows allow.

It knows only the windows of streams (gateway/wire/http2_streams.py); gateway/wire/http2.py decides what is sent when.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.wire import frames, hpack
from gateway.wire.frames import END_HEADERS, END_STREAM, frame
from gateway.wire.http2_streams import SendQueue, Stream
from gateway.wire.messages import Header

Piece = bytes | bytearray | memoryview


class Sender:
    """The frames and data that were given and not taken yet."""

    def __init__(self) -> None:
        self.queue = SendQueue()
        self._out: list[Piece] = []
        self._out_bytes = 0
        self._table_update = b""

    def __repr__(self) -> str:
        return f"Sender(out_bytes={self._out_bytes}, {self.queue})"

    @property
    def pending_bytes(self) -> int:
        return self.queue.pending_bytes + self._out_bytes

    @property
    def has_output(self) -> bool:
        return bool(self._out) or self.queue.is_ready

    def take(self) -> list[Piece]:
        """Returns the frames that wait for no window."""
        out, self._out, self._out_bytes = self._out, [], 0
        return out

    def use_no_table(self) -> None:
        """Announces a table of size 0: the client's is smaller than by default (RFC 7541 4.2)."""
        self._table_update = b"\x20"

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

    def send_data(self, stream: Stream, data: Piece, *, ends: bool) -> bool:
        """Sends the data, or queues it behind a window. Returns True if the stream's last frame is sent by now."""
        if not self.queue.fits(stream, len(data)):
            if data:
                self.queue.add(stream, data)
            stream.ends = stream.ends or ends
            return False
        self.send(frames.frame_head(len(data), frames.DATA, END_STREAM if ends else 0, stream.stream_id))
        if data:
            self.send(data)
        return ends
