"""Long-polls all partitions of the topic while it is being filled, and has everything checked.

That the log holds nothing beyond what was read is not seen here, but when it is tiered: the count must be the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from loadtests.demo.checker import Checker
from penstock import Consumer

PATIENCE_S = 20.0  # how long nothing may come, after all has been produced, before it is taken for lost
_LOOK_UP_MS = 500


class Fetched(NamedTuple):
    """What arrived, when the last of it did (from the first request of the producer on), and what was wrong."""

    records: int
    seconds: float
    median_lag_ms: float  # from the node's timestamp of a record to the moment the consumer holds it
    faults: list[str]


async def fetch(
    consumer: Consumer, checker: Checker, producing: asyncio.Task[Any], advance: Callable[[int], None]
) -> Fetched:
    """Read until every flight has come, or for too long none does. Raises what ended the producer, if it failed."""
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
            if now - last > PATIENCE_S:
                break
    return Fetched(checker.fetched, last - started, _median(lags), checker.faults())


def _median(lags: list[tuple[float, int]]) -> float:
    """The median over records, of which each list has one lag."""
    half = sum(count for _, count in lags) / 2
    for lag_ms, count in sorted(lags):
        half -= count
        if half <= 0:
            return lag_ms
    return 0.0
