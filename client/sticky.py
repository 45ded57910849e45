"""Where records without a key go: a batch's worth to one partition, then to the one with the least waiting.

Spreading them one by one would make many small batches; and a slow partition must not hold up the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from client.batch import Batch, PartitionQueue


class StickyPartition:
    """The choice for one topic. Sync; `queues` holds the topic's partitions in order."""

    def __init__(self, queues: Sequence[PartitionQueue]) -> None:
        self._queues = queues
        self.count = len(queues)
        self._current = 0
        self.batch: Batch | None = None  # the one that the last record went into; stay while it is open

    def queue_for(self, line_bytes: int) -> PartitionQueue:
        queue = self._queues[self._current]
        if self.batch is None or queue.open_batch is not self.batch:
            return self._turn()
        if self.batch.size_bytes + line_bytes > queue.batch_bytes:
            queue.close_batch()
            return self._turn()
        return queue

    def _turn(self) -> PartitionQueue:
        count = len(self._queues)
        following = ((self._current + step) % count for step in range(1, count + 1))
        self._current = min(following, key=lambda partition: self._queues[partition].waiting_bytes)
        self.batch = None
        return self._queues[self._current]
