"""The streams of an HTTP/2 connection: their states, the client's windows, and bounds of what is under way.

Invariants: (1) `last_id` never falls; (2) a request counts from its head until the shell releases it, whether its
stream is still open or not, so that a client that resets its streams cannot have more requests under way.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from gateway.wire import frames
from gateway.wire.frames import PROTOCOL_ERROR, ConnectionFault
from gateway.wire.messages import WireLimits

STREAM_WINDOW = 4 * 1024 * 1024  # of each direction towards us: a body of 4 MB is sent without waiting for us
CONNECTION_WINDOW = 16 * 1024 * 1024
WINDOW_SHARE = 4  # a window is widened after a quarter of it is consumed: few frames, and the client seldom waits
RESET_MAX = 256  # streams that we reset last; frames for them that were under way are ignored
HEADS_SHARE = 64  # heads of this many times the limit of one are under way: 4 MiB, or 1,024 heads of 4 KiB


def first_frames(limits: WireLimits) -> bytes:
    """Returns the frames that begin a connection: our settings, and the window of the connection."""
    values = {
        frames.MAX_CONCURRENT_STREAMS: limits.streams_max,
        frames.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        frames.MAX_HEADER_LIST_SIZE: limits.header_bytes_max,
    }
    return frames.settings(values) + frames.window_update(0, CONNECTION_WINDOW - frames.WINDOW_DEFAULT)


class ReceiveWindow:
    """Counts what a client may still send (RFC 9113 5.2), and what was read since the window was widened."""

    __slots__ = ("_consumed", "_left", "_size")

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes
        self._left = size_bytes
        self._consumed = 0

    def takes(self, size_bytes: int) -> bool:
        """Subtracts the bytes of a frame. Returns False if the client sends more than it may."""
        self._left -= size_bytes
        return self._left >= 0

    def widened(self, size_bytes: int) -> int:
        """Counts bytes that were read. Returns by how much the window is widened now: 0, or a large step."""
        self._consumed += size_bytes
        if self._consumed < self._size // WINDOW_SHARE:
            return 0
        step, self._consumed = self._consumed, 0
        self._left += step
        return step


class Stream(ReceiveWindow):
    """One request and its answer. `announced` is the content-length, if there is one."""

    __slots__ = ("announced", "ends", "is_local_open", "is_remote_open", "is_stopped", "pieces", "received",
                 "send_left", "stream_id")  # fmt: skip

    def __init__(self, stream_id: int, send_left: int, announced: int | None) -> None:
        self._size = self._left = STREAM_WINDOW  # no frame of the base
        self._consumed = 0
        self.stream_id = stream_id
        self.announced = announced
        self.received = 0
        self.send_left = send_left
        self.pieces: deque[memoryview] | None = None  # data that waits for a window
        self.ends = False  # behind the pieces
        self.is_local_open = True
        self.is_remote_open = True
        self.is_stopped = False  # the rest of its body is rejected once its answer is sent

    def __repr__(self) -> str:
        return f"Stream({self.stream_id}, received={self.received}, send_left={self.send_left})"


class Streams:
    """The streams of a connection: `open` has those in which a side may still send."""

    def __init__(self, limits: WireLimits) -> None:
        self.open: dict[int, Stream] = {}
        self.last_id = 0
        self._requests_max = limits.streams_max
        self._head_bytes_max = HEADS_SHARE * limits.header_bytes_max
        self._heads: dict[int, int] = {}  # bytes of the heads of the requests under way
        self._head_bytes = 0
        self._reset_here: OrderedDict[int, None] = OrderedDict()

    def __repr__(self) -> str:
        return f"Streams(open={len(self.open)}, under_way={len(self._heads)}, last={self.last_id})"

    def has_room(self, head_bytes: int) -> bool:
        """Returns whether a request with such a head may begin."""
        requests_max = self._requests_max
        return (
            len(self.open) < requests_max
            and len(self._heads) < requests_max
            and self._head_bytes + head_bytes <= self._head_bytes_max
        )

    def begin(self, stream: Stream, head_bytes: int) -> None:
        """Begins a request."""
        self.open[stream.stream_id] = stream
        self._heads[stream.stream_id] = head_bytes
        self._head_bytes += head_bytes

    def release(self, stream_id: int) -> None:
        """Ends a request: the shell has dropped it."""
        self._head_bytes -= self._heads.pop(stream_id, 0)

    def known(self, stream_id: int) -> Stream | None:
        """Returns the stream; None if it is closed. Raises ConnectionFault if it was never open."""
        if stream_id == 0 or stream_id > self.last_id or stream_id % 2 == 0:
            raise ConnectionFault(PROTOCOL_ERROR, "a frame of a stream that was never opened")
        return self.open.get(stream_id)

    def record_reset(self, stream_id: int) -> None:
        """Remembers a stream that is reset by us."""
        self._reset_here[stream_id] = None
        if len(self._reset_here) > RESET_MAX:
            self._reset_here.popitem(last=False)

    def was_reset_here(self, stream_id: int) -> bool:
        """Returns whether frames of a closed stream may have been under way when we reset it."""
        return stream_id in self._reset_here
