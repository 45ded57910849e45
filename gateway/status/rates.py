"""How much is written to and read from each topic in a second, and how old its records are, from plain counters.

Counts the partitions that this process leads: each partition once in a cluster. A partition that it has just become the
leader of counts from the next sample on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from msgspec import Struct

from engine.errors import EngineError
from engine.log.segment import Segment
from engine.partition.partition import Partition
from engine.shard.shard import Shard
from gateway.status.partition_look import slices_of_partitions

READS_MAX = 200  # of first records in one sample: each may open a file


class TopicNumbers(Struct, array_like=True):
    """A topic as far as one process leads its partitions. `oldest_ms`: of the records on disk, None: not known.

    `tier_lag_s`: how long the oldest sealed segment waits for its upload. `lag_group` is the group that is the furthest
    behind, of those that the process coordinates.
    """

    records_in_per_s: float = 0.0
    bytes_in_per_s: float = 0.0
    bytes_out_per_s: float = 0.0
    log_bytes: int = 0
    oldest_ms: int | None = None
    tier_lag_s: float = 0.0
    lag_group: str | None = None
    lag_records: int = 0
    lag_s: float = 0.0

    def add(self, other: TopicNumbers) -> None:
        """Adds the numbers of another process, or of another partition."""
        self.records_in_per_s += other.records_in_per_s
        self.bytes_in_per_s += other.bytes_in_per_s
        self.bytes_out_per_s += other.bytes_out_per_s
        self.log_bytes += other.log_bytes
        self.tier_lag_s = max(self.tier_lag_s, other.tier_lag_s)
        if other.oldest_ms is not None and (self.oldest_ms is None or other.oldest_ms < self.oldest_ms):
            self.oldest_ms = other.oldest_ms
        if other.lag_group is not None and (self.lag_group is None or other.lag_records > self.lag_records):
            self.lag_group, self.lag_records, self.lag_s = other.lag_group, other.lag_records, other.lag_s


class _Seen:
    """The counters of a partition at the last sample, and its rates since the one before."""

    __slots__ = ("bytes_in", "bytes_out", "log_end", "oldest", "rates")

    def __init__(self, partition: Partition) -> None:
        self.rates = (0.0, 0.0, 0.0)
        self.oldest: tuple[int, int | None] = (-1, None)  # base offset of the first segment, and its first timestamp
        self.look(partition)

    def look(self, partition: Partition) -> None:
        self.log_end, self.bytes_in, self.bytes_out = partition.log_end, partition.bytes_in, partition.bytes_out


class TopicRates:
    def __init__(self, shard: Shard, executor: Executor, monotonic: Callable[[], float]) -> None:
        self._shard = shard
        self._executor = executor
        self._monotonic = monotonic
        self._seen: dict[Partition, _Seen] = {}
        self._sampled_at = monotonic()

    def __repr__(self) -> str:
        return f"TopicRates(partitions={len(self._seen)})"

    async def sample(self) -> None:
        """Computes the rates since the last sample, in slices of the loop."""
        now = self._monotonic()
        passed_s, self._sampled_at = max(now - self._sampled_at, 0.001), now
        seen: dict[Partition, _Seen] = {}
        unknown: list[tuple[_Seen, Segment]] = []
        async for partitions in slices_of_partitions(self._shard):
            for partition in partitions:
                if self._shard.leading_epoch(partition) is None:
                    continue
                before = self._seen.get(partition)
                if before is None:
                    before = _Seen(partition)
                elif before.log_end != partition.log_end or before.bytes_out != partition.bytes_out:
                    written = max(0, partition.log_end - before.log_end), max(0, partition.bytes_in - before.bytes_in)
                    records, size_bytes, read = *written, max(0, partition.bytes_out - before.bytes_out)
                    before.rates = records / passed_s, size_bytes / passed_s, read / passed_s
                    before.look(partition)
                else:
                    before.rates = (0.0, 0.0, 0.0)
                seen[partition] = before
                first = partition.log.segments[0]
                if first.base_offset != before.oldest[0] and first.size_bytes:
                    unknown.append((before, first))
        self._seen = seen
        if unknown:
            await asyncio.get_running_loop().run_in_executor(self._executor, _read_oldest, unknown[:READS_MAX])

    def numbers_of(self, name: str, now_ms: int) -> TopicNumbers | None:
        """Returns the numbers of a topic; None if this process has no partition of it."""
        topic = self._shard.topics.get(name)
        if topic is None:
            return None
        numbers = TopicNumbers()
        for partition in topic.partitions.values():
            if self._shard.leading_epoch(partition) is not None:
                self._add(numbers, partition, now_ms)
        return numbers

    def _add(self, numbers: TopicNumbers, partition: Partition, now_ms: int) -> None:
        segments = partition.log.segments
        numbers.log_bytes += segments[0].size_bytes if len(segments) == 1 else partition.log.size_bytes
        seen = self._seen.get(partition)
        if seen is not None:
            records, size_bytes, read = seen.rates
            numbers.records_in_per_s += records
            numbers.bytes_in_per_s += size_bytes
            numbers.bytes_out_per_s += read
            oldest = seen.oldest[1]
            if oldest is not None and (numbers.oldest_ms is None or oldest < numbers.oldest_ms):
                numbers.oldest_ms = oldest
        if len(segments) > 1:
            numbers.tier_lag_s = max(numbers.tier_lag_s, self.tier_lag_s(partition, now_ms))

    def tier_lag_s(self, partition: Partition, now_ms: int) -> float:
        """Returns how long the oldest sealed segment has waited for its upload."""
        segments, tiered_end = partition.log.segments, self._shard.tiered_end(partition)
        if tiered_end is None:
            return 0.0
        oldest = None
        for position in range(len(segments) - 2, -1, -1):
            if segments[position].next_offset <= tiered_end:
                break
            oldest = segments[position]
        return 0.0 if oldest is None else max(0, now_ms - (oldest.last_append_ms or now_ms)) / 1000


def _read_oldest(unknown: list[tuple[_Seen, Segment]]) -> None:
    """Reads the time of the first record of segments. Runs in a thread: the disk may be slow."""
    for seen, segment in unknown:
        try:
            seen.oldest = segment.base_offset, segment.first_timestamp()
        except (OSError, ValueError, EngineError):  # deleted meanwhile, or damaged: the next sample looks again
            seen.oldest = -1, None
