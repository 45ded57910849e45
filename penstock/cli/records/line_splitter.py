"""Cuts a stream of bytes into bodies of whole lines. Searches for a line feed only where a body must end.

Not a parser: the node validates the lines. Memory is bounded by the body size and the longest line.
"""

from __future__ import annotations


class LineTooLong(ValueError):
    """A line does not end within the bound, so it cannot be one record."""


class LineSplitter:
    """Cuts bodies: feed() each piece that was read, take() until it returns None; after the last, take(is_end=True)."""

    def __init__(self, body_bytes: int, line_bytes_max: int) -> None:
        self._body_bytes = body_bytes
        self._line_bytes_max = line_bytes_max
        self._rest = bytearray()

    @property
    def held_bytes(self) -> int:
        return len(self._rest)

    def feed(self, piece: bytes) -> None:
        self._rest += piece

    def take(self, *, is_end: bool = False) -> bytes | None:
        """Returns at most body_bytes of whole lines, or a longer first line alone; None if no line is complete.

        Raises LineTooLong.
        """
        rest = self._rest
        if len(rest) <= self._body_bytes and is_end:
            cut = len(rest)
        else:
            # 1. The last line that still fits. 2. No line fits: the first line, once its end has been read.
            cut = rest.rfind(b"\n", 0, self._body_bytes) + 1 or rest.find(b"\n", self._body_bytes) + 1
            if cut == 0 and is_end:
                cut = len(rest)
        if cut > self._line_bytes_max or (cut == 0 and len(rest) > self._line_bytes_max):
            raise LineTooLong(f"a line is longer than {self._line_bytes_max} bytes")
        if cut == 0:
            return None
        body = bytes(rest[:cut])
        del rest[:cut]
        return body
