"""Seals the segments of the topic and waits until they are in the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from loadtests.demo import DemoFailed
from penstock import Client
from penstock.transport.exchange import Json

TIMEOUT_S = 60.0
_LOOK_UP_S = 0.02


class Tiered(NamedTuple):
    """The node's tier status: records below `tiered_end`, and their objects."""

    records: int
    objects: int
    size_bytes: int
    store: str
    seconds: float


async def tier(client: Client, topic: str, advance: Callable[[int], None]) -> Tiered:
    """Rolls, and waits for the store to have everything below each sealed end. Raises DemoFailed."""
    started = time.perf_counter()
    rolled = await client.roll_topic(topic)
    sealed_ends = {partition["partition"]: partition["sealed_end"] for partition in rolled["partitions"]}
    records = 0
    while True:
        status = await client.tier_status(topic)
        before, records = records, sum(row["tiered_end"] - row["log_start"] for row in status["partitions"])
        advance(records - before)
        seconds = time.perf_counter() - started
        if all(partition["tiered_end"] >= sealed_ends[partition["partition"]] for partition in status["partitions"]):
            return _sum_up(status, records, seconds)
        if seconds > TIMEOUT_S:
            errors = {partition["last_error"] for partition in status["partitions"]} - {None}
            raise DemoFailed(
                f"after {seconds:.0f} s the store has {records:,} records: {errors or 'no error reported'}"
            )
        await asyncio.sleep(_LOOK_UP_S)


def _sum_up(status: Json, records: int, seconds: float) -> Tiered:
    objects = sum(partition["objects"] for partition in status["partitions"])
    size_bytes = sum(partition["tiered_bytes"] for partition in status["partitions"])
    return Tiered(records, objects, size_bytes, status["store"], seconds)
