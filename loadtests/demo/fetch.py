"""Long-polls all partitions of the topic while the producer fills it, and checks each record.

`Checker` compares records by their bytes: a changed flight counts as one missing and one unexpected. The tier step
checks that the log holds no further records: its count must be the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from loadtests.demo.flights import Flights
from penstock import Consumer

TIMEOUT_S = 60.0  # without a record, after the producer has finished
_LOOK_UP_MS = 500


class Readable(Protocol):
    """The fields of a client's record that the checker reads."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


class Checker:
    """Checks records: every flight once, under its key, at contiguous offsets."""

    def __init__(self, flights: Flights) -> None:
        self._awaited: dict[bytes | None, bytes | None] = {
            line: None if key is None else key.encode() for line, key in zip(flights.lines, flights.keys, strict=True)
        }
        assert len(self._awaited) == len(flights)  # no two flights are equal
        self.fetched = 0
        self.gaps = 0
        self.wrong_keys = 0
        self.unexpected = 0  # duplicates, and records that were never sent
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
        """Returns faults as text; empty if every flight arrived exactly once."""
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


class Fetched(NamedTuple):
    """Records and faults; `seconds` is from the first produce to the last record."""

    records: int
    seconds: float
    median_lag_ms: float  # from the node's timestamp of a record to the moment the consumer holds it
    faults: list[str]


async def fetch(
    consumer: Consumer, checker: Checker, producing: asyncio.Task[Any], advance: Callable[[int], None]
) -> Fetched:
    """Reads until every flight has arrived or TIMEOUT_S passes without a record. Raises the error of the producer."""
    lags: list[tuple[float, int]] = []
    started = last = time.perf_counter()
    while checker.missing:
        records = await consumer.poll(_LOOK_UP_MS)
        now = time.perf_counter()
        if records:
            checker.accept(records)
            lags.append((time.time() * 1000 - records[-1].timestamp, len(records)))
            advance(len(records))
            last = now
        elif producing.done():
            producing.result()
            if now - last > TIMEOUT_S:
                break
    return Fetched(checker.fetched, last - started, _median(lags), checker.faults())


def _median(lags: list[tuple[float, int]]) -> float:
    """Returns the median over records; each list of records has one lag."""
    half = sum(count for _, count in lags) / 2
    for lag_ms, count in sorted(lags):
        half -= count
        if half <= 0:
            return lag_ms
    return 0.0
