"""How much is written to and read from each topic in a second, and how old its records are, from plain counters.

Counts the partitions that this process leads: each partition once in a cluster. A partition that it has just become the
leader of counts from the next sample on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from itertools import islice
from operator import attrgetter

from msgspec import Struct

from engine.errors import EngineError
from engine.log.segment import Segment
from engine.partition.partition import Partition
from engine.shard.shard import Shard
from gateway.status.partition_look import slices_of_partitions

IDLE = (0.0, 0.0, 0.0)
_COUNTERS = attrgetter("bytes_in", "bytes_out", "log.log_start")
Counters = tuple[int | None, int, int, int]  # the leader epoch, and the numbers of _COUNTERS
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

    __slots__ = ("bytes_in", "bytes_out", "epoch", "log_end", "oldest", "rates")

    def __init__(self, partition: Partition, epoch: int) -> None:
        self.epoch = epoch
        self.rates = IDLE
        self.oldest: tuple[int, int | None] = (-1, None)  # base offset of the first segment, and its first timestamp
        self.look(partition)

    def look(self, partition: Partition) -> None:
        self.log_end, self.bytes_in, self.bytes_out = partition.log_end, partition.bytes_in, partition.bytes_out


class TopicRates:
    """Invariant: a partition whose counters and leader epoch are those of the sample before costs a comparison."""

    def __init__(self, shard: Shard, executor: Executor, monotonic: Callable[[], float]) -> None:
        self._shard = shard
        self._executor = executor
        self._monotonic = monotonic
        self._seen: dict[Partition, _Seen] = {}
        self._counters: dict[Partition, Counters] = {}
        self._moving: list[_Seen] = []
        self._unread: dict[Partition, tuple[_Seen, Segment]] = {}
        self._sampled_at = monotonic()

    def __repr__(self) -> str:
        return f"TopicRates(partitions={len(self._seen)})"

    async def sample(self) -> None:
        """Computes the rates since the last sample, in slices of the loop."""
        now = self._monotonic()
        passed_s, self._sampled_at = max(now - self._sampled_at, 0.001), now
        for seen in self._moving:
            seen.rates = IDLE
        self._moving = []
        counters: dict[Partition, Counters] = {}
        before, leading_epoch = self._counters.get, self._shard.leading_epoch
        async for partitions in slices_of_partitions(self._shard):
            for partition, numbers in zip(partitions, map(_COUNTERS, partitions), strict=True):
                epoch = leading_epoch(partition)
                if before(partition) != (present := (epoch, *numbers)):
                    self._sample(partition, epoch, passed_s)
                counters[partition] = present
        for partition in self._counters.keys() - counters.keys():
            self._forget(partition)
        self._counters = counters
        if self._unread:
            unread = dict(islice(self._unread.items(), READS_MAX))
            await asyncio.get_running_loop().run_in_executor(self._executor, _read_oldest, list(unread.values()))
            for partition, (seen, segment) in unread.items():
                if seen.oldest[0] == segment.base_offset:
                    self._unread.pop(partition, None)

    def _sample(self, partition: Partition, epoch: int | None, passed_s: float) -> None:
        """Computes the rates of a partition that has moved. One that is led since then begins with none."""
        seen = self._seen.get(partition)
        if epoch is None:
            self._forget(partition)
            return
        if seen is None or seen.epoch != epoch:
            seen = self._seen[partition] = _Seen(partition, epoch)
        else:
            records, written = partition.log_end - seen.log_end, partition.bytes_in - seen.bytes_in
            read = partition.bytes_out - seen.bytes_out
            seen.rates = max(0, records) / passed_s, max(0, written) / passed_s, max(0, read) / passed_s
            seen.look(partition)
            self._moving.append(seen)
        first = partition.log.segments[0]
        if first.base_offset != seen.oldest[0] and first.size_bytes:
            self._unread[partition] = seen, first

    def _forget(self, partition: Partition) -> None:
        self._seen.pop(partition, None)
        self._unread.pop(partition, None)

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
