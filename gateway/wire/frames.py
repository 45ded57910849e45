"""The frames of HTTP/2 (RFC 9113 4 and 6): numbers, layouts, encoding, a reader, and a bound for useless ones.

`FrameReader` splits bytes into frames and joins header blocks. It checks everything that needs no stream: the preface,
the first frame, sizes, padding, and that a header block is continued at once and ends (a flood of CONTINUATION frames
is CVE-2024-27316). `FloodGuard` is a token bucket for one kind of useless work: rapid resets (CVE-2023-44487), streams
that the client makes us reset ("MadeYouReset", CVE-2025-8671), and floods of pings, settings, priorities and empty
frames (CVE-2019-9512, 9515, 9518).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = struct.Struct(">HBBBL")  # length in 16 and 8 bits, type, flags, stream
HEAD_BYTES = 9
WORD = struct.Struct(">L")
SETTING = struct.Struct(">HL")

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY_FLAG = 0x1, 0x1, 0x4, 0x8, 0x20

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, _, STREAM_CLOSED, FRAME_SIZE_ERROR = range(7)
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, _, ENHANCE_YOUR_CALM = range(7, 12)

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)
MAX_HEADER_LIST_SIZE = 6

STREAM_ID_MAX = 2**31 - 1
WINDOW_MAX = 2**31 - 1
WINDOW_DEFAULT = 65_535
FRAME_BYTES_DEFAULT = 16_384
FRAME_BYTES_MAX = 2**24 - 1

_SHAPE = END_HEADERS | PADDED | PRIORITY_FLAG  # the flags that say how a block is framed

CONTINUATIONS_MAX = 64
BLOCK_SHARE = 4  # a block of up to this many limits is read and rejected with 431; a larger one ends the connection
BURST = 2000  # a client may cancel all streams of a connection at once, twice, with the default limit
RATE = 50.0  # a second; nghttp2 allows 33


Buffer = bytes | bytearray | memoryview


class ConnectionFault(Exception):
    """The client breaks the protocol; the connection ends with a GOAWAY of this code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class StreamFault(Exception):
    """The client breaks the protocol on one stream, which is reset with this code."""

    def __init__(self, stream_id: int, code: int) -> None:
        super().__init__(f"stream {stream_id}: {code}")
        self.stream_id = stream_id
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return frame_head(len(payload), kind, flags, stream_id) + payload


def frame_head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    return HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(*one) for one in values.items()))


def settings_in(payload: bytes) -> list[tuple[int, int]]:
    """Returns the settings of a frame; of several first windows the last, or one that is too large.

    Each change of it visits all streams, and a frame has room for 2730.
    """
    values: list[tuple[int, int]] = list(SETTING.iter_unpack(payload))
    windows = [value for name, value in values if name == INITIAL_WINDOW_SIZE]
    if len(windows) > 1:
        window = max(windows) if max(windows) > WINDOW_MAX else windows[-1]
        values = [one for one in values if one[0] != INITIAL_WINDOW_SIZE] + [(INITIAL_WINDOW_SIZE, window)]
    return values


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, WORD.pack(increment))


def reset(stream_id: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, WORD.pack(code))


def goaway(last_stream_id: int, code: int, text: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, WORD.pack(last_stream_id) + WORD.pack(code) + text.encode())


def without_padding(flags: int, payload: bytes) -> bytes:
    """Returns the payload of a DATA or HEADERS frame. Raises ConnectionFault for too much padding."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(PROTOCOL_ERROR, "more padding than the frame has bytes")
    return payload[1 : len(payload) - payload[0]]


class _Block(NamedTuple):
    """A header block that is not complete yet."""

    stream_id: int
    flags: int
    parts: list[bytes]


class FrameReader:
    """The bytes that were received and not parsed yet. `header_bytes_max` is the limit of a request's headers.

    A payload is copied once: the frame that two receives share is put together alone.
    """

    def __init__(self, header_bytes_max: int) -> None:
        self._data: Buffer = b""
        self._position = 0
        self._next: Buffer = b""  # follows `_data`, which then ends with a frame
        self._block: _Block | None = None
        self._block_bytes_max = BLOCK_SHARE * header_bytes_max
        self._has_preface = False
        self._has_settings = False

    def __repr__(self) -> str:
        return f"FrameReader(unread={self.unread_bytes})"

    @property
    def unread_bytes(self) -> int:
        return len(self._data) - self._position + len(self._next)

    def feed(self, data: Buffer) -> None:
        """Takes received bytes. If they are a view of a buffer, call `keep` before that changes."""
        if self._next:
            self.keep()
        rest = bytes(self._data[self._position :])
        missing = self._missing_bytes(rest, data) if rest else 0
        if not rest:
            self._data = data
        elif 0 < missing < len(data):
            self._data, self._next = rest + data[:missing], memoryview(data)[missing:]
        else:
            self._data = rest + data
        self._position = 0

    def keep(self) -> None:
        """Copies what is not parsed yet."""
        if self._position == len(self._data) and not self._next:
            self._data, self._position = b"", 0  # an idle connection holds none of its last bytes
            return
        self._data = b"".join((self._data[self._position :], self._next))
        self._position, self._next = 0, b""

    def _missing_bytes(self, rest: bytes, data: Buffer) -> int:
        """Returns how many bytes end the frame that `rest` begins; 0 if that is unknown."""
        head = rest[:HEAD_BYTES] + data[: max(0, HEAD_BYTES - len(rest))]
        if len(head) < HEAD_BYTES or not self._has_preface:
            return 0
        high, low, *_ = HEAD.unpack(head)
        return HEAD_BYTES + int(high << 8 | low) - len(rest)

    def next(self) -> tuple[int, int, int, bytes] | None:
        """Returns type, flags, stream and payload of the next frame, if it is whole. HEADERS has its whole block.

        Raises ConnectionFault.
        """
        if not self._has_preface and not self._read_preface():
            return None
        while len(self._data) - self._position >= HEAD_BYTES or self._has_next():
            high, low, kind, flags, stream_id = HEAD.unpack_from(self._data, self._position)
            length = high << 8 | low
            if length > FRAME_BYTES_DEFAULT:
                raise ConnectionFault(FRAME_SIZE_ERROR, "a frame larger than allowed")
            start = self._position + HEAD_BYTES
            end = start + length
            if end > len(self._data):
                return None
            payload, self._position = bytes(self._data[start:end]), end
            stream_id &= STREAM_ID_MAX
            if not self._has_settings:
                if kind != SETTINGS or flags & ACK:
                    raise ConnectionFault(PROTOCOL_ERROR, "the first frame is not SETTINGS")
                self._has_settings = True
            if kind == HEADERS and flags & _SHAPE == END_HEADERS and stream_id & 1 and self._block is None:
                return kind, flags, stream_id, payload  # a whole block without padding: nothing else to check
            if kind:  # DATA, which is 0, may have any length and stream
                _check_layout(kind, flags, stream_id, length)
            if self._block is not None or kind in (HEADERS, CONTINUATION):
                whole = self._in_block(kind, flags, stream_id, payload)
                if whole is None:
                    continue
                return whole
            return kind, flags, stream_id, payload
        return None

    def _has_next(self) -> bool:
        """Goes on to the bytes behind a frame that was put together. Returns whether a head is there."""
        if self._position == len(self._data):
            self._data, self._position, self._next = self._next, 0, b""
        return len(self._data) - self._position >= HEAD_BYTES

    def _read_preface(self) -> bool:
        start = bytes(self._data[: len(PREFACE)])
        if start != PREFACE:
            if PREFACE.startswith(start):
                return False
            raise ConnectionFault(PROTOCOL_ERROR, "no preface of HTTP/2")
        self._has_preface = True
        self._position = len(PREFACE)
        return True

    def _in_block(self, kind: int, flags: int, stream_id: int, payload: bytes) -> tuple[int, int, int, bytes] | None:
        """Returns the whole block if this frame ends one."""
        block = self._block
        if kind == HEADERS and block is None:
            part = _fragment(flags, stream_id, payload)
            if flags & END_HEADERS:
                return kind, flags, stream_id, part
            self._block = _Block(stream_id, flags, [part])
            return None
        if kind != CONTINUATION or block is None or stream_id != block.stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "a header block is not continued, or there is none to continue")
        block.parts.append(payload)
        if len(block.parts) > CONTINUATIONS_MAX or sum(map(len, block.parts)) > self._block_bytes_max:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "a header block without end")
        if not flags & END_HEADERS:
            return None
        self._block = None
        return HEADERS, block.flags, stream_id, b"".join(block.parts)


GOAWAY_BYTES_MIN = 8  # the last stream and the code
_SIZES = {RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_OF_CONNECTION = (SETTINGS, PING, GOAWAY)


def _check_layout(kind: int, flags: int, stream_id: int, length: int) -> None:
    """Raises ConnectionFault for a frame of a wrong size, or on a stream where it cannot be."""
    if kind == PUSH_PROMISE or (stream_id and kind in _OF_CONNECTION):
        raise ConnectionFault(PROTOCOL_ERROR, "a frame that cannot be there")
    is_wrong = (kind in _SIZES and length != _SIZES[kind]) or (kind == GOAWAY and length < GOAWAY_BYTES_MIN)
    if is_wrong or (kind == SETTINGS and (length % 6 or (flags & ACK and length))):
        raise ConnectionFault(FRAME_SIZE_ERROR, "a frame of a wrong size")


def check_priority(stream_id: int, payload: bytes) -> None:
    """Checks a PRIORITY frame, which is ignored. Raises ConnectionFault, StreamFault."""
    if stream_id == 0:
        raise ConnectionFault(PROTOCOL_ERROR, "a priority of the connection")
    if len(payload) != 5:
        raise StreamFault(stream_id, FRAME_SIZE_ERROR)
    if WORD.unpack_from(payload)[0] & STREAM_ID_MAX == stream_id:
        raise StreamFault(stream_id, PROTOCOL_ERROR)


def _fragment(flags: int, stream_id: int, payload: bytes) -> bytes:
    """Returns the part of a header block that a HEADERS frame has."""
    if stream_id % 2 == 0:
        raise ConnectionFault(PROTOCOL_ERROR, "a stream that only a server opens")
    part = without_padding(flags, payload)
    if not flags & PRIORITY_FLAG:
        return part
    if len(part) < 5:
        raise ConnectionFault(FRAME_SIZE_ERROR, "a priority that is too short")
    if WORD.unpack_from(part)[0] & STREAM_ID_MAX == stream_id:
        raise ConnectionFault(PROTOCOL_ERROR, "a stream that depends on itself")
    return part[5:]


class FloodGuard:
    """A client may do useless work now and then; beyond the burst and the rate the connection ends.

    `now` is in seconds of any monotonic clock.
    """

    def __init__(self, what: str, burst: int = BURST, rate: float = RATE) -> None:
        self._what = what
        self._burst = burst
        self._rate = rate
        self._left = float(burst)
        self._filled_at = 0.0

    def __repr__(self) -> str:
        return f"FloodGuard({self._what}, left={self._left:.0f})"

    def spend(self, now: float) -> None:
        """Take a token. Raises ConnectionFault when none is left."""
        if self._left < self._burst:
            self._left = min(self._burst, self._left + (now - self._filled_at) * self._rate)
        self._filled_at = now
        self._left -= 1
        if self._left < 0:
            raise ConnectionFault(ENHANCE_YOUR_CALM, f"too many {self._what}")
