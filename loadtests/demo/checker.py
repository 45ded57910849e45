"""Checks that what is read is what was sent: every flight once, under its key, at offsets without a gap.

Pure: it is given records and remembers. A record is told by its bytes, so a flight that came back changed counts as
one that is missing and one that nobody sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from loadtests.demo.flights import Flights


class Readable(Protocol):
    """What the checker looks at in a record of the client."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


class Checker:
    """Give it each list of records of one partition, as it comes."""

    def __init__(self, flights: Flights) -> None:
        self._awaited: dict[bytes | None, bytes | None] = {
            line: None if key is None else key.encode() for line, key in zip(flights.lines, flights.keys, strict=True)
        }
        assert len(self._awaited) == len(flights)  # no two flights are the same event
        self.fetched = 0
        self.gaps = 0
        self.wrong_keys = 0
        self.unexpected = 0  # seen before, or never sent
        self.next_offsets: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<Checker fetched={self.fetched} missing={self.missing} {self.faults()}>"

    @property
    def missing(self) -> int:
        return len(self._awaited)

    def accept(self, records: Sequence[Readable]) -> None:
        for record in records:
            self.gaps += record.offset != self.next_offsets.get(record.partition, 0)
            self.next_offsets[record.partition] = record.offset + 1
            self._check_off(record.value, record.key)
        self.fetched += len(records)

    def faults(self) -> list[str]:
        """What is wrong, in words; nothing when every flight has come exactly once."""
        counts = {
            "missing": self.missing,
            "repeated or unknown": self.unexpected,
            "with a wrong key": self.wrong_keys,
            "gaps in the offsets": self.gaps,
        }
        return [f"{count:,} {name}" for name, count in counts.items() if count]

    def _check_off(self, value: bytes | None, key: bytes | None) -> None:
        if value not in self._awaited:
            self.unexpected += 1
        elif self._awaited.pop(value) != key:
            self.wrong_keys += 1
