"""What event streams have read for clients that have not taken it yet, in all: who finds no room reads again later.

A piece is as large as the batch that it was read from, which its producer chose, so that to bound their number is not
enough. Counting is all that it does; gateway/fetch/tail.py waits. What must hold: one piece fits always, however large.
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
        """Count a piece for as long as it is there."""
        self.size_bytes += size_bytes
        try:
            yield
        finally:
            self.size_bytes -= size_bytes
