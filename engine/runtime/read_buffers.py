"""Buffers of large reads that are used again: a new one is cleared first, which takes half as long as the read.

`ReadBuffers` gives buffers of the length that is asked for, `ReceiveBuffers` views of longer ones: answers of other
nodes have any length up to some megabytes.

A buffer is free when only the list refers to it. CPython counts the references of each object exactly, those of views
included, and an answer's last one goes when the socket has taken its last byte. Nothing has to be given back.
Invariant: a buffer that anything else can still read is never handed out.
"""

from __future__ import annotations

import sys

SIZE_BYTES_MIN = 128 * 1024  # a smaller one is cleared in microseconds
SIZE_BYTES_MAX = 2 * 1024 * 1024
KEPT_BYTES_MAX = 8 * 1024 * 1024  # of all together: the answers of several clients at once
_STEP_BYTES = 128 * 1024
_RECEIVE_STEP_BYTES = 1024 * 1024
_REFERENCES = 3  # to a free buffer in a variable: with the list's and that of the call that counts
_EMPTY_BYTES = bytearray().__sizeof__() + 1


class ReadBuffers:
    """Any thread may call: to look at a buffer is to refer to it, so that two threads never take the same one."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def __repr__(self) -> str:
        return f"ReadBuffers({len(self._buffers)} of {self.kept_bytes} bytes)"

    @property
    def kept_bytes(self) -> int:
        return sum(map(_room, self._buffers))

    def take(self, length: int) -> bytearray:
        """Returns a buffer of this length, with any bytes in it."""
        if not SIZE_BYTES_MIN <= length <= SIZE_BYTES_MAX:
            return bytearray(length)
        for buffer in self._buffers:
            if sys.getrefcount(buffer) == _REFERENCES and length <= (room := _room(buffer)) < 2 * length:
                if len(buffer) < length:
                    buffer += bytes(length - len(buffer))
                else:
                    del buffer[length:]
                assert _room(buffer) == room, "it was moved"
                return buffer
        buffer = bytearray(-(-length // _STEP_BYTES) * _STEP_BYTES)
        self._keep(buffer)
        del buffer[length:]
        return buffer

    def _keep(self, new: bytearray) -> None:
        """Keeps a buffer, if need be in place of one of another size."""
        while self.kept_bytes + len(new) > KEPT_BYTES_MAX:
            free = next(
                (at for at in range(len(self._buffers)) if sys.getrefcount(self._buffers[at]) < _REFERENCES), None
            )
            if free is None:
                return
            del self._buffers[free]
        self._buffers.append(new)


class ReceiveBuffers:
    """Buffers that are longer than the bodies in them. Used from one event loop."""

    def __init__(self, kept_bytes_max: int) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._buffers: list[bytearray] = []

    def __repr__(self) -> str:
        return f"ReceiveBuffers({len(self._buffers)} of {self.kept_bytes} bytes)"

    @property
    def kept_bytes(self) -> int:
        return sum(map(len, self._buffers))

    def take(self, length: int) -> memoryview:
        """Returns a view of this length, with any bytes in it."""
        if length < SIZE_BYTES_MIN:
            return memoryview(bytearray(length))
        for buffer in self._buffers:
            if sys.getrefcount(buffer) == _REFERENCES and length <= len(buffer):
                return memoryview(buffer)[:length]
        buffer = bytearray(-(-length // _RECEIVE_STEP_BYTES) * _RECEIVE_STEP_BYTES)
        free = [at for at in range(len(self._buffers)) if sys.getrefcount(self._buffers[at]) < _REFERENCES]
        while free and self.kept_bytes + len(buffer) > self._kept_bytes_max:
            del self._buffers[free.pop()]
        if self.kept_bytes + len(buffer) <= self._kept_bytes_max:
            self._buffers.append(buffer)
        return memoryview(buffer)[:length]


def _room(buffer: bytearray) -> int:
    """Returns the length to which a buffer can grow in its place."""
    return buffer.__sizeof__() - _EMPTY_BYTES
