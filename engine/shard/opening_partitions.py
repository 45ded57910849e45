"""Partitions that are open and not all taken in yet: a shard takes many in by slices, and saves points between them.

Invariant: from when a partition is open until it is served, each save has its point. Without it, what was fsynced
counts as a torn tail after a power loss, and records that were given up come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from engine.partition.partition import Partition
from engine.shard.opening import Wanted


class Arriving:
    """With the keys of their points: their topic need not be known yet."""

    def __init__(self) -> None:
        self._keys: dict[Partition, str] = {}

    def __repr__(self) -> str:
        return f"Arriving({len(self._keys)})"

    @contextmanager
    def taking_in(self, wanted: Sequence[Wanted], partitions: Sequence[Partition]) -> Iterator[None]:
        """They are taken in within."""
        self._keys |= {
            partition: f"{one.record.topic_id}/{one.number}" for one, partition in zip(wanted, partitions, strict=True)
        }
        try:
            yield
        finally:
            for partition in partitions:
                self._keys.pop(partition, None)

    def and_served(self, served: Iterable[Partition]) -> Iterable[Partition]:
        """These and the ones that are served, each once."""
        return dict.fromkeys([*served, *self._keys]) if self._keys else served

    def key_of(self, partition: Partition) -> str | None:
        """None for one that is not among them."""
        return self._keys.get(partition)
