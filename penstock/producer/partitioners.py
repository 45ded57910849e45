"""Chooses the partition of a record that names none: by its key, evenly, or by the caller's function.

A partitioner returns a partition, or None for the sticky choice: it fills a batch for one partition, then takes the
least busy one. Keys go to the same partition as with a Kafka producer; the node applies the same rule to records
without a partition. The client applies it itself to know the position of each record of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from murmurhash2 import murmurhash2

from penstock.producer.batch import Batch, PartitionQueue
from penstock.producer.lines import key_bytes

Partitioner = Callable[[str, bytes | None, int], int | None]
"""From topic, key and number of partitions to a partition. The key is as it is stored."""

Choose = Callable[[str, Any, int], int | None]
"""The same with the key as the caller gave it, which only some choices look at."""

_KAFKA_SEED = 0x9747B28C
_POSITIVE = 0x7FFFFFFF

PartitionerName = Literal["key_hash", "sticky", "round_robin"]


def chooser(partitioner: PartitionerName | Partitioner) -> Choose:
    """Returns the function that chooses partitions. Raises ValueError for an unknown name."""
    if partitioner == "key_hash":
        return by_key_hash
    if partitioner == "sticky":
        return always_sticky
    if partitioner == "round_robin":
        return RoundRobin()
    if not callable(partitioner):
        raise ValueError(
            f"a partitioner is a function, or one of {', '.join(get_args(PartitionerName))}; got {partitioner!r}"
        )
    return _check_range(partitioner)


def by_key_hash(topic: str, key: Any, partitions: int) -> int | None:
    """Chooses by the hash of the key, as Kafka clients do; sticky without a key."""
    return None if key is None else partition_of_key(key_bytes(key), partitions)


def always_sticky(topic: str, key: Any, partitions: int) -> int | None:
    """Ignores keys, which gives the fullest batches. Records of one key go to any partition."""
    return None


class RoundRobin:
    """Sends one record to each partition in turn, whatever its key: the most even choice, with the smallest batches."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, key: Any, partitions: int) -> int | None:
        partition = self._next.get(topic, 0) % partitions
        self._next[topic] = partition + 1
        return partition


def _check_range(partitioner: Partitioner) -> Choose:
    def choose(topic: str, key: Any, partitions: int) -> int | None:
        partition = partitioner(topic, None if key is None else key_bytes(key), partitions)
        if partition is not None and not 0 <= partition < partitions:
            raise ValueError(f"the partitioner chose partition {partition} of {topic}, which has {partitions}")
        return partition

    return choose


def partition_of_key(key: bytes, partitions: int) -> int:
    """Returns Kafka's default partition of a key: murmur2 of the key, modulo the number of partitions."""
    return int(murmurhash2(key, _KAFKA_SEED) & _POSITIVE) % partitions


class StickyPartition:
    """Chooses the partition for a topic's records without a key. Synchronous; `queues` has its partitions in order.

    One record to each in turn would make many small batches, and a slow partition must not delay the others.
    """

    def __init__(self, queues: Sequence[PartitionQueue]) -> None:
        self._queues = queues
        self.count = len(queues)
        self._current = 0
        self.batch: Batch | None = None  # the batch of the last record; the choice holds while it is open

    def queue_for(self, line_bytes: int) -> PartitionQueue:
        queue = self._queues[self._current]
        if self.batch is None or queue.open_batch is not self.batch:
            return self._choose_next()
        if self.batch.size_bytes + line_bytes > queue.batch_bytes:
            queue.close_batch()
            return self._choose_next()
        return queue

    def _choose_next(self) -> PartitionQueue:
        count = len(self._queues)
        following = ((self._current + step) % count for step in range(1, count + 1))
        self._current = min(following, key=lambda partition: self._queues[partition].waiting_bytes)
        self.batch = None
        return self._queues[self._current]
