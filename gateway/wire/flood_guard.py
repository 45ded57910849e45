"""Bounds the useless work that a client causes on a connection: one token bucket for each kind of it.

Each kind has a burst and a rate, since a client may do it now and then; beyond them the connection ends with
ENHANCE_YOUR_CALM. It covers rapid resets (CVE-2023-44487), streams that the client makes us reset ("MadeYouReset",
CVE-2025-8671), and floods of pings, settings, priorities and empty frames (CVE-2019-9512, 9515, 9518).
"""

from __future__ import annotations

from gateway.wire.frames import ENHANCE_YOUR_CALM, ConnectionFault

BURST = 2000  # a client may cancel all streams of a connection at once, twice, with the default limit
RATE = 50.0  # a second; nghttp2 allows 33


class FloodGuard:
    """One bucket. `now` is in seconds of any monotonic clock."""

    def __init__(self, what: str, burst: int = BURST, rate: float = RATE) -> None:
        self._what = what
        self._burst = burst
        self._rate = rate
        self._left = float(burst)
        self._filled_at = 0.0

    def __repr__(self) -> str:
        return f"FloodGuard({self._what}, left={self._left:.0f})"

    def spend(self, now: float) -> None:
        """Take a token. Raises ConnectionFault when none is left."""
        if self._left < self._burst:
            self._left = min(self._burst, self._left + (now - self._filled_at) * self._rate)
        self._filled_at = now
        self._left -= 1
        if self._left < 0:
            raise ConnectionFault(ENHANCE_YOUR_CALM, f"too many {self._what}")
