"""The frames of HTTP/2 (RFC 9113 4 and 6): numbers, layouts, and their encoding. It decides nothing."""

from __future__ import annotations

import struct

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
