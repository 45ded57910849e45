"""Which partitions are to be in the next group of the committer, and in what order: topics take turns.

Knows neither work nor time. Invariant: a partition waits for as many groups as its own topic needs for what came before
it, times the topics that wait, and never for all partitions of another topic.
"""

from __future__ import annotations

from engine.partition.partition import Partition


class CommitQueue:
    """Partitions, each with whether whatever it has is to be synced. In the order of their coming within a topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[Partition, bool]] = {}  # none is empty
        self._count = 0

    def __repr__(self) -> str:
        return f"CommitQueue({self._count} of {len(self._by_topic)} topics)"

    def __len__(self) -> int:
        return self._count

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._by_topic.get(partition.topic, ())

    def add(self, partition: Partition, *, sync: bool) -> None:
        """Once each: it keeps its place, and a sync that was asked for."""
        of_topic = self._by_topic.get(partition.topic)
        if of_topic is None:
            of_topic = self._by_topic[partition.topic] = {}
        had = of_topic.get(partition)
        self._count += had is None
        of_topic[partition] = sync or bool(had)

    def discard(self, partition: Partition) -> None:
        of_topic = self._by_topic.get(partition.topic, {})
        if of_topic.pop(partition, None) is not None:
            self._count -= 1
            if not of_topic:
                del self._by_topic[partition.topic]

    def take(self, count: int) -> list[tuple[Partition, bool]]:
        """Remove so many, one of each topic in turn. The topics that have more begin the next time where this ended."""
        if self._count <= count:
            taken = [item for of_topic in self._by_topic.values() for item in of_topic.items()]
            self._by_topic, self._count = {}, 0
            return taken
        taken = []
        while len(taken) < count:
            topic = next(iter(self._by_topic))
            of_topic = self._by_topic.pop(topic)
            partition = next(iter(of_topic))
            taken.append((partition, of_topic.pop(partition)))
            if of_topic:
                self._by_topic[topic] = of_topic
        self._count -= count
        return taken
