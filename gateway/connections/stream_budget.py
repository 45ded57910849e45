"""Bounds the bytes that event streams have read and their clients have not taken. Beyond it, streams read again later.

A piece is as large as the batch that it was read from, whose size the producer chose, so a bound on the number of
pieces is not enough. This file only counts; gateway/fetch/tail.py waits. Invariant: one piece always fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class StreamBudget:
    """All pieces of this process."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"StreamBudget(size_bytes={self.size_bytes})"

    def has_room(self, incoming_bytes: int) -> bool:
        return self.size_bytes == 0 or self.size_bytes + incoming_bytes <= self.bytes_max

    @contextmanager
    def hold(self, size_bytes: int) -> Iterator[None]:
        """Counts a piece until the block ends."""
        self.size_bytes += size_bytes
        try:
            yield
        finally:
            self.size_bytes -= size_bytes
