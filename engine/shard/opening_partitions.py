"""Opened partitions that are not all served yet: a shard adds many in slices, and saves recovery points in between.

Invariant: each save has the point of a partition from its opening on, before it is served. Without it, fsynced records
would count as a torn tail after a power loss, and deleted records would come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from engine.partition.partition import Partition
from engine.shard.opening import OpenRequest


class OpeningPartitions:
    """The partitions with the keys of their points: their topic need not be known yet."""

    def __init__(self) -> None:
        self._keys: dict[Partition, str] = {}

    def __repr__(self) -> str:
        return f"Arriving({len(self._keys)})"

    @contextmanager
    def including(self, wanted: Sequence[OpenRequest], partitions: Sequence[Partition]) -> Iterator[None]:
        """Include these partitions in each save within this context."""
        self._keys |= {
            partition: f"{one.record.topic_id}/{one.number}" for one, partition in zip(wanted, partitions, strict=True)
        }
        try:
            yield
        finally:
            for partition in partitions:
                self._keys.pop(partition, None)

    def and_served(self, served: Iterable[Partition]) -> Iterable[Partition]:
        """Yield these and the served partitions, each once."""
        return dict.fromkeys([*served, *self._keys]) if self._keys else served

    def key_of(self, partition: Partition) -> str | None:
        """Return the key of a partition's point; None if it is not among them."""
        return self._keys.get(partition)
