"""A token bucket in bytes per second: the replication throttle of replicas that catch up.

It holds at most one second's worth. A batch is taken whole, so the bucket may go below zero; the next taker then waits
longer. 0 bytes per second: unlimited.
"""

from __future__ import annotations


class TokenBucket:
    """A bucket of bytes. `now` is monotonic seconds throughout."""

    def __init__(self, bytes_per_second: int, now: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._left = float(bytes_per_second)
        self._at = now

    def __repr__(self) -> str:
        return f"TokenBucket({self.bytes_per_second}/s, left={self._left:.0f})"

    def left(self, now: float) -> int | None:
        """Returns how many bytes may be taken now; None if unlimited."""
        if not self.bytes_per_second:
            return None
        self._left = min(self.bytes_per_second, self._left + (now - self._at) * self.bytes_per_second)
        self._at = now
        return max(0, int(self._left))

    def take(self, size_bytes: int) -> None:
        self._left -= size_bytes

    def wait_s(self) -> float:
        """Returns the seconds until the bucket is above zero, as of the last call of `left`."""
        return max(0.0, 1 - self._left) / self.bytes_per_second if self.bytes_per_second else 0.0
