"""The receiving half of an HTTP/2 connection: splits bytes into frames, and joins header blocks.

It checks everything that needs no stream: the preface, the first frame, sizes, padding, and that a header block is
continued at once and ends (a flood of CONTINUATION frames is CVE-2024-27316).
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.wire import frames
from gateway.wire.frames import ConnectionFault

CONTINUATIONS_MAX = 64
BLOCK_SHARE = 4  # a block of up to this many limits is read and rejected with 431; a larger one ends the connection


class _Block(NamedTuple):
    """A header block that is not complete yet."""

    stream_id: int
    flags: int
    parts: list[bytes]


class FrameReader:
    """The bytes that were received and not parsed yet. `header_bytes_max` is the limit of a request's headers."""

    def __init__(self, header_bytes_max: int) -> None:
        self._data = b""
        self._position = 0
        self._block: _Block | None = None
        self._block_bytes_max = BLOCK_SHARE * header_bytes_max
        self._has_preface = False
        self._has_settings = False

    def __repr__(self) -> str:
        return f"FrameReader(unread={len(self._data) - self._position})"

    def feed(self, data: bytes) -> None:
        rest = self._data[self._position :]
        self._data, self._position = rest + data if rest else data, 0

    def next(self) -> tuple[int, int, int, bytes] | None:
        """Returns type, flags, stream and payload of the next frame, if it is whole. HEADERS has its whole block.

        Raises ConnectionFault.
        """
        if not self._has_preface and not self._read_preface():
            return None
        while len(self._data) - self._position >= frames.HEAD_BYTES:
            high, low, kind, flags, stream_id = frames.HEAD.unpack_from(self._data, self._position)
            length = high << 8 | low
            if length > frames.FRAME_BYTES_DEFAULT:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a frame larger than allowed")
            start = self._position + frames.HEAD_BYTES
            end = start + length
            if end > len(self._data):
                return None
            payload, self._position = self._data[start:end], end
            stream_id &= frames.STREAM_ID_MAX
            if not self._has_settings:
                if kind != frames.SETTINGS or flags & frames.ACK:
                    raise ConnectionFault(frames.PROTOCOL_ERROR, "the first frame is not SETTINGS")
                self._has_settings = True
            _check_layout(kind, flags, stream_id, length)
            if self._block is not None or kind in (frames.HEADERS, frames.CONTINUATION):
                whole = self._in_block(kind, flags, stream_id, payload)
                if whole is None:
                    continue
                return whole
            return kind, flags, stream_id, payload
        if self._position == len(self._data):
            self._data, self._position = b"", 0  # an idle connection holds none of its last bytes
        return None

    def _read_preface(self) -> bool:
        if not self._data.startswith(frames.PREFACE):
            if frames.PREFACE.startswith(self._data):
                return False
            raise ConnectionFault(frames.PROTOCOL_ERROR, "no preface of HTTP/2")
        self._has_preface = True
        self._position = len(frames.PREFACE)
        return True

    def _in_block(self, kind: int, flags: int, stream_id: int, payload: bytes) -> tuple[int, int, int, bytes] | None:
        """Returns the whole block if this frame ends one."""
        block = self._block
        if kind == frames.HEADERS and block is None:
            part = _fragment(flags, stream_id, payload)
            if flags & frames.END_HEADERS:
                return kind, flags, stream_id, part
            self._block = _Block(stream_id, flags, [part])
            return None
        if kind != frames.CONTINUATION or block is None or stream_id != block.stream_id:
            raise ConnectionFault(
                frames.PROTOCOL_ERROR, "a header block is not continued, or there is none to continue"
            )
        block.parts.append(payload)
        if len(block.parts) > CONTINUATIONS_MAX or sum(map(len, block.parts)) > self._block_bytes_max:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "a header block without end")
        if not flags & frames.END_HEADERS:
            return None
        self._block = None
        return frames.HEADERS, block.flags, stream_id, b"".join(block.parts)


_SIZES = {frames.RST_STREAM: 4, frames.PING: 8, frames.WINDOW_UPDATE: 4}
_OF_CONNECTION = (frames.SETTINGS, frames.PING, frames.GOAWAY)


def _check_layout(kind: int, flags: int, stream_id: int, length: int) -> None:
    """Raises ConnectionFault for a frame of a wrong size, or on a stream where it cannot be."""
    if kind == frames.PUSH_PROMISE or (stream_id and kind in _OF_CONNECTION):
        raise ConnectionFault(frames.PROTOCOL_ERROR, "a frame that cannot be there")
    if kind == frames.SETTINGS:
        is_wrong = length % 6 or (flags & frames.ACK and length)
    else:
        is_wrong = kind in _SIZES and length != _SIZES[kind]
    if is_wrong:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a frame of a wrong size")


def _fragment(flags: int, stream_id: int, payload: bytes) -> bytes:
    """Returns the part of a header block that a HEADERS frame has."""
    if stream_id % 2 == 0:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "a stream that only a server opens")
    part = frames.without_padding(flags, payload)
    if not flags & frames.PRIORITY_FLAG:
        return part
    if len(part) < 5:
        raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a priority that is too short")
    if frames.WORD.unpack_from(part)[0] & frames.STREAM_ID_MAX == stream_id:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "a stream that depends on itself")
    return part[5:]
