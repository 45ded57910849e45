"""Turns the start of a consumer into one offset per partition, before the first fetch.

Fixed at the start: "latest" means the moment of starting, not that of the first successful answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from penstock.records import milliseconds
from penstock.transport import api
from penstock.transport.attempts import Attempts

Start = str | int | datetime | Mapping[int, int]
"""`earliest`, `latest`, an RFC 3339 time, a datetime, an offset for every partition, or an offset per partition."""


class StartPosition(NamedTuple):
    partition: int
    offset: int
    end: int  # the high watermark when the consumer started
    topic_id: str | None = None  # of the topic that these are of; None: the node is of an older release

    def ending_at(self, end: int) -> StartPosition:
        """Returns the position with an earlier end. An end before the start leaves nothing to read."""
        return self if end >= self.end else self._replace(end=max(end, min(self.offset, self.end)))


async def find_starts(
    attempts: Attempts, topic: str, partitions: Iterable[int], start: Start, give_up_ms: int
) -> list[StartPosition]:
    """Finds all start positions concurrently. A partition that a mapping omits begins at its earliest record."""

    async def find(partition: int) -> StartPosition:
        timestamp = _timestamp_of(start)
        answer = await attempts.send_with_retries(api.positions(topic, partition, timestamp), give_up_ms)
        bounds = answer.json()
        end = bounds["high_watermark"]
        return StartPosition(partition, _offset_of(start, partition, bounds), end, bounds.get("topic_id"))

    return list(await asyncio.gather(*(find(partition) for partition in partitions)))


def _timestamp_of(start: Start) -> int | str | None:
    if isinstance(start, datetime):
        return milliseconds(start)
    return start if isinstance(start, str) and start not in ("earliest", "latest") else None


def _offset_of(start: Start, partition: int, bounds: Mapping[str, Any]) -> int:
    log_start, high_watermark = int(bounds["log_start"]), int(bounds["high_watermark"])
    if isinstance(start, Mapping):
        return start.get(partition, log_start)
    if isinstance(start, int):
        return start
    if start == "earliest":
        return log_start
    if start == "latest":
        return high_watermark
    offset = bounds["offset"]  # none at or after the time: wait for new records
    return high_watermark if offset is None else int(offset)
