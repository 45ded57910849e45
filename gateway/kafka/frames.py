"""Splits the bytes of a connection into frames: a length of four bytes, and that many bytes.

A pure core: bytes in, frames out. A length is checked before its bytes are waited for, so an HTTP request or a TLS
hello, which announce hundreds of megabytes, ends the connection at once.
"""

from __future__ import annotations

import struct

from gateway.kafka.codec.messages import Malformed

_LENGTH = struct.Struct(">i")
_LENGTH_BYTES = 4


class Frames:
    """The incoming bytes of one connection. `bytes_max` bounds a frame, and may be changed between two of them."""

    __slots__ = ("_announced", "_partial", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._partial = bytearray()  # of the frame that has not arrived whole, behind its length
        self._announced = -1  # its length; -1 while that has not arrived

    def __repr__(self) -> str:
        return f"Frames({len(self._partial)} of {self._announced})"

    @property
    def partial_bytes(self) -> int:
        """The bytes of the frame that has not arrived whole, with those of its length."""
        return len(self._partial) + (_LENGTH_BYTES if self._announced >= 0 else 0)

    def receive(self, data: memoryview) -> list[memoryview]:
        """Takes bytes, which the caller may use again, and returns the frames that are whole. Raises Malformed."""
        frames: list[memoryview] = []
        position, end = 0, len(data)
        while position < end:
            if self._announced < 0:
                if not self._partial and end - position >= _LENGTH_BYTES:
                    (length,) = _LENGTH.unpack_from(data, position)
                    behind = position + _LENGTH_BYTES + length
                    if 0 <= length <= self.bytes_max and behind <= end:  # it is whole, which is usual
                        frames.append(memoryview(bytes(data[position + _LENGTH_BYTES : behind])))
                        position = behind
                        continue
                missing = _LENGTH_BYTES - len(self._partial)
                self._partial += data[position : position + missing]
                position += missing
                if len(self._partial) < _LENGTH_BYTES:
                    break
                (self._announced,) = _LENGTH.unpack(self._partial)
                if not 0 <= self._announced <= self.bytes_max:
                    text = f"a frame announces {self._announced} bytes, {self.bytes_max} are allowed"
                    raise Malformed(text)
                self._partial = bytearray()
            missing = self._announced - len(self._partial)
            self._partial += data[position : position + missing]
            position += missing
            if len(self._partial) == self._announced:
                frames.append(memoryview(self._partial))
                self._partial, self._announced = bytearray(), -1
        return frames
