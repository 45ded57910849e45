"""Which partition a record goes to, when it names none: by its key, spread out, or as the caller's function says.

A partitioner gives a partition, or None for the sticky choice (client/sticky.py): a batch's worth to one partition,
then to the least busy. The hash itself is client/partitioning.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client.lines import key_bytes
from client.partitioning import partition_of_key

Partitioner = Callable[[str, bytes | None, int], int | None]
"""From topic, key and number of partitions to a partition. The key is as it is stored."""

Choose = Callable[[str, Any, int], int | None]
"""The same with the key as the caller gave it, which only some choices look at."""

NAMES = ("key_hash", "sticky", "round_robin")


def chooser(partitioner: str | Partitioner) -> Choose:
    """Raises ValueError for a name that is none."""
    if partitioner == "key_hash":
        return by_key_hash
    if partitioner == "sticky":
        return always_sticky
    if partitioner == "round_robin":
        return RoundRobin()
    if not callable(partitioner):
        raise ValueError(f"a partitioner is a function, or one of {', '.join(NAMES)}; got {partitioner!r}")
    return _checked(partitioner)


def by_key_hash(topic: str, key: Any, partitions: int) -> int | None:
    """As Kafka clients choose; without a key, sticky."""
    return None if key is None else partition_of_key(key_bytes(key), partitions)


def always_sticky(topic: str, key: Any, partitions: int) -> int | None:
    """Keys do not matter: the fullest batches, and records of one key anywhere."""
    return None


class RoundRobin:
    """One record to each partition in turn, whatever its key: the most even, with the smallest batches."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, key: Any, partitions: int) -> int | None:
        partition = self._next.get(topic, 0) % partitions
        self._next[topic] = partition + 1
        return partition


def _checked(partitioner: Partitioner) -> Choose:
    def choose(topic: str, key: Any, partitions: int) -> int | None:
        partition = partitioner(topic, None if key is None else key_bytes(key), partitions)
        if partition is not None and not 0 <= partition < partitions:
            raise ValueError(f"the partitioner chose partition {partition} of {topic}, which has {partitions}")
        return partition

    return choose
