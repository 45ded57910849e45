"""Where the partitions of a group are: their bounds, the first record at a time, and how far a group is behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from engine.errors import EngineError
from engine.format import batch as record_batch
from engine.partition.partition import Partition
from engine.runtime.clock import Clock
from gateway.fetch.context import ReadContext
from gateway.fetch.positions import FIND_OFFSETS, Positions
from gateway.fetch.reader import read_chunk
from gateway.routing.router import Answering, PartitionCall, Router

Places = Sequence[tuple[str, int]]


class Lag(NamedTuple):
    """The log behind a position: records, stored bytes, and the age of the first record in milliseconds."""

    log_start: int
    high_watermark: int
    records: int
    size_bytes: int
    age_ms: int


LAG: PartitionCall[int, Lag] = PartitionCall("group_lag", int)


async def lag(context: ReadContext, clock: Clock, partition: Partition, offset: int) -> tuple[Lag, bytes]:
    """Returns how far a position is behind the high watermark."""
    log_start, end = partition.log.log_start, partition.high_watermark
    first = max(offset, log_start)
    if first >= end:
        return Lag(log_start, end, 0, 0, 0), b""
    chunk = await read_chunk(context, partition, first, 1)
    stamp = clock.now_ms() if chunk is None else record_batch.read_header(chunk.data).base_timestamp
    size_bytes = partition.log.bytes_from(max(first, partition.log.local_log_start))
    return Lag(log_start, end, end - first, size_bytes, max(0, clock.now_ms() - stamp)), b""


def lag_calls(context: ReadContext, clock: Clock) -> list[Answering]:
    """Returns the calls to partitions of this process."""
    return [LAG.by(partial(lag, context, clock))]


async def measure_lags(router: Router, places: Sequence[tuple[str, int, int]]) -> list[Lag | None]:
    """Returns the lag of each (topic, partition, offset); None where it cannot be learnt now."""

    async def measure_now(topic: str, number: int, offset: int) -> Lag | None:
        try:
            fields, _ = await router.call(LAG, topic, number, offset, budget_ms=0)
        except EngineError:
            return None
        return Lag(*fields)

    return await asyncio.gather(*(measure_now(*position) for position in places))


async def find_bounds(router: Router, places: Places, timestamp: int | None = None) -> list[Positions]:
    """Returns the bounds of each partition and, for a time, its first record. Raises EngineError."""
    answers = await asyncio.gather(*(router.call(FIND_OFFSETS, topic, number, timestamp) for topic, number in places))
    return [answer for answer, _ in answers]
