"""So many bytes a second, and what is left of them: how replicas that catch up are kept from taking everything.

A bucket that fills with time and holds a second's worth. What was taken may be more than was left (a batch is given
whole); then the bucket is below zero, and whoever comes next waits longer. 0 bytes a second: no bound.
"""

from __future__ import annotations


class TokenBucket:
    """See the head of the file. `now` is monotonic seconds throughout."""

    def __init__(self, bytes_per_second: int, now: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._left = float(bytes_per_second)
        self._at = now

    def __repr__(self) -> str:
        return f"TokenBucket({self.bytes_per_second}/s, left={self._left:.0f})"

    def left(self, now: float) -> int | None:
        """How many bytes may be taken now; None where there is no bound."""
        if not self.bytes_per_second:
            return None
        self._left = min(self.bytes_per_second, self._left + (now - self._at) * self.bytes_per_second)
        self._at = now
        return max(0, int(self._left))

    def take(self, size_bytes: int) -> None:
        self._left -= size_bytes

    def wait_s(self) -> float:
        """Until there is something left again, as of the last look."""
        return max(0.0, 1 - self._left) / self.bytes_per_second if self.bytes_per_second else 0.0
