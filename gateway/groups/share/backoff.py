"""The delay before a record that failed is delivered again. Pure: its jitter follows from the record's place.

The same place and count give the same delay, so that a repeated call, a replay and a simulation decide the same.
Records that failed together come back apart.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

DOUBLINGS_MAX = 40  # of a delay: more would only grow the number


class Backoff(NamedTuple):
    """The first and the longest delay of a group, in milliseconds."""

    delay_ms: int
    delay_ms_max: int

    def after(self, failures: int, record_id: str) -> int:
        """Returns the delay after this number of failures: half of the doubled delay, and up to as much again."""
        doubled = min(self.delay_ms << min(failures - 1, DOUBLINGS_MAX), self.longest_ms)
        return doubled - doubled * crc32(f"{record_id} {failures}".encode()) // 2**33

    @property
    def longest_ms(self) -> int:
        return max(self.delay_ms, self.delay_ms_max)
