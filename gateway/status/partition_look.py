"""A look at all partitions of a process: what their numbers add up to, and what is wrong with which of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from engine.partition.partition import Partition
from engine.shard.shard import Shard
from replication.replica.replicas import Replicas

SLICE = 400  # partitions of two microseconds each: less than a millisecond
WAITING_MAX = 1000  # partitions that wait for an upload, and are named

Row = tuple[str, int, str]  # topic, number, text


class PartitionLook(Struct, frozen=True):
    offline: tuple[Row, ...] = ()
    damaged: tuple[Row, ...] = ()
    diverged: tuple[Row, ...] = ()
    led: int = 0
    log_bytes: int = 0
    tier_lag_s: float = 0.0
    replica_lag_records: int = 0
    waiting: tuple[Partition, ...] = ()


async def slices_of_partitions(shard: Shard) -> AsyncIterator[list[Partition]]:
    """Yields the partitions in slices, between which other tasks run. Topics may come and go meanwhile."""
    partitions = [partition for topic in shard.topics.values() for partition in topic.partitions.values()]
    for begin in range(0, len(partitions), SLICE):
        if begin:
            await asyncio.sleep(0)
        yield partitions[begin : begin + SLICE]


async def look_at_partitions(
    shard: Shard, replicas: Replicas, tier_lag_s: Callable[[Partition], float], upload_wait_s: float
) -> PartitionLook:
    """Looks at each partition. `waiting` are those whose oldest sealed segment waits longer for its upload."""
    offline, damaged, diverged = list[Row](), list[Row](), list[Row]()
    waiting: list[Partition] = []
    led = log_bytes = replica_lag = 0
    longest_s = 0.0
    leading_epoch = shard.leading_epoch
    async for partitions in slices_of_partitions(shard):
        replica_of = replicas.by_partition.get
        for partition in partitions:
            segments = partition.log.segments
            is_one = len(segments) == 1
            log_bytes += segments[0].size_bytes if is_one else partition.log.size_bytes
            if partition.offline is not None:
                offline.append((partition.topic, partition.number, str(partition.offline)))
            elif not is_one or segments[0].damage:
                number = sum(bool(segment.damage) for segment in segments)
                if number:
                    damaged.append((partition.topic, partition.number, f"{number} segments"))
            replica = replica_of(partition)
            if replica is not None and replica.kept_from is not None:
                text = f"that lacks records from offset {replica.kept_from} on"
                diverged.append((partition.topic, partition.number, text))
            if leading_epoch(partition) is None:
                continue
            led += 1
            lags = None if replica is None else replica.lag
            if lags:
                replica_lag = max(replica_lag, *lags.values())
            if not is_one:
                lag_s = tier_lag_s(partition)
                longest_s = max(longest_s, lag_s)
                if lag_s > upload_wait_s and len(waiting) < WAITING_MAX:
                    waiting.append(partition)
    return PartitionLook(
        tuple(offline),
        tuple(damaged),
        tuple(diverged),
        led,
        log_bytes,
        longest_s,
        replica_lag,
        tuple(waiting),
    )
