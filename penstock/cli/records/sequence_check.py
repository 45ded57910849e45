"""Checks the numbers of a run: which are missing, which came twice, which are out of order. Pure: no I/O, no clock.

A run numbers its records from 0. A partition has them in ascending order if one producer has sent them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

NUMBER_MAX = 2**30  # of a run: a bit for each takes 128 MiB
SHOWN_MAX = 10  # of the numbers that are named


@dataclass(frozen=True)
class RunReport:
    """The faults of a run; `others` are records that are not of it. `missing` has the first numbers only."""

    records: int
    missing_count: int
    missing: tuple[int, ...]
    duplicates: int
    out_of_order: int
    others: int

    @property
    def is_right(self) -> bool:
        return not (self.missing_count or self.duplicates or self.out_of_order)


class SequenceCheck:
    """The records of one run, as they are read."""

    def __init__(self) -> None:
        self._seen = bytearray()  # a bit for each number
        self._last: dict[int, int] = {}  # number, by partition
        self._end = 0  # one above the highest number
        self._records = self._duplicates = self._out_of_order = self._others = 0

    def __repr__(self) -> str:
        return f"SequenceCheck({self._records} records)"

    def add_other(self) -> None:
        """Counts a record that is not of the run."""
        self._others += 1

    def add(self, partition: int, number: int) -> None:
        """Takes the number of a record; one that no run can have is not of the run."""
        if not 0 <= number < NUMBER_MAX:
            self._others += 1
            return
        at, bit = number >> 3, 1 << (number & 7)
        if at >= len(self._seen):
            self._seen.extend(bytes(max(at + 1 - len(self._seen), len(self._seen))))
        if self._seen[at] & bit:
            self._duplicates += 1
            return
        self._seen[at] |= bit
        self._records += 1
        self._end = max(self._end, number + 1)
        if number < self._last.get(partition, -1):
            self._out_of_order += 1
        self._last[partition] = number

    def report(self, expected: int = 0) -> RunReport:
        """Returns what is wrong. The run has the numbers below `expected`, or up to the highest that was read."""
        end = max(self._end, expected)
        missing = islice(
            (number for number in range(end) if not self._has(number)), min(SHOWN_MAX, end - self._records)
        )
        counts = self._duplicates, self._out_of_order, self._others
        return RunReport(self._records, end - self._records, tuple(missing), *counts)

    def _has(self, number: int) -> bool:
        at = number >> 3
        return at < len(self._seen) and bool(self._seen[at] & 1 << (number & 7))
