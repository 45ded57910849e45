"""The frames of links: cuts them out of the bytes of a connection. Pure.

A frame is a head (kind, number of the call, two lengths), arguments and a payload. Invariants: a payload above
LARGE_BYTES that does not arrive with its head is received into its own buffer, so that it is copied once, by the
kernel; a frame is returned as soon as its last byte has arrived.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, cast

from engine.runtime.read_buffers import ReadBuffers

HEAD = struct.Struct(">BQII")  # kind, call, length of the arguments, length of the payload
CALL, REPLY, FAILURE, CANCEL, TRACE = range(5)  # a process of an earlier version ignores TRACE, whose number is 0

BUFFER_BYTES = 128 * 1024  # hundreds of small frames
LARGE_BYTES = 16 * 1024  # smaller payloads are copied, which costs less than another system call


class Frame(NamedTuple):
    """One frame. A payload that was received into its own buffer is a bytearray, which serves as bytes."""

    kind: int
    number: int
    arguments: bytes
    payload: bytes


def encode_frame(kind: int, number: int, arguments: bytes, payload: bytes | bytearray) -> list[bytes | bytearray]:
    """Returns the pieces of a frame; the payload is not copied."""
    head = HEAD.pack(kind, number, len(arguments), len(payload)) + arguments
    return [head, payload] if payload else [head]


class FrameReader:
    """Receives the bytes of one connection: read into `free()`, then call `receive`."""

    def __init__(self) -> None:
        self._buffer = bytearray(BUFFER_BYTES)
        self._end = 0  # of the bytes in the buffer
        self._buffers = ReadBuffers()
        self._large: Frame | None = None  # whose payload is being received
        self._filled = 0  # bytes of that payload

    def __repr__(self) -> str:
        return f"FrameReader(buffered={self._end}, large={0 if self._large is None else len(self._large.payload)})"

    def free(self) -> memoryview:
        """Returns the room for the next bytes, at least one."""
        if self._large is not None:
            return memoryview(self._large.payload)[self._filled :]
        return memoryview(self._buffer)[self._end :]

    def receive(self, count: int) -> list[Frame]:
        """Returns the frames that are complete with `count` bytes more."""
        if self._large is not None:
            self._filled += count
            if self._filled < len(self._large.payload):
                return []
            frame, self._large = self._large, None
            return [frame]
        self._end += count
        frames: list[Frame] = []
        with memoryview(self._buffer) as view:
            used, missing = self._cut(view, frames)
            rest = bytes(view[used : self._end])
        if used or missing >= len(self._buffer):
            self._keep(rest, missing)
        return frames

    def _cut(self, view: memoryview, frames: list[Frame]) -> tuple[int, int]:
        """Cuts frames off the buffer. Returns the bytes that were used, and the size of the incomplete frame."""
        at, end = 0, self._end
        while end - at >= HEAD.size:
            kind, number, arguments_length, payload_length = HEAD.unpack_from(view, at)
            body = at + HEAD.size
            payload_at = body + arguments_length
            after = payload_at + payload_length
            if after <= end:
                frames.append(Frame(kind, number, bytes(view[body:payload_at]), bytes(view[payload_at:after])))
                at = after
            elif payload_at <= end and payload_length > LARGE_BYTES:
                payload = self._buffers.take(payload_length)
                self._filled = end - payload_at
                payload[: self._filled] = view[payload_at:end]
                self._large = Frame(kind, number, bytes(view[body:payload_at]), cast(bytes, payload))
                return end, 0
            else:
                is_large = payload_length > LARGE_BYTES
                return at, HEAD.size + arguments_length + (0 if is_large else payload_length)
        return at, 0

    def _keep(self, rest: bytes, size: int) -> None:
        """Moves the rest to the beginning of a buffer with room for a frame of this size."""
        if size >= len(self._buffer):
            self._buffer = bytearray(size + 1)
        elif len(self._buffer) > BUFFER_BYTES and size < BUFFER_BYTES:
            self._buffer = bytearray(BUFFER_BYTES)
        self._buffer[: len(rest)] = rest
        self._end = len(rest)
