"""Which shard of a node owns a partition, and which data directory a new one goes to. Pure.

Disk layout does not depend on shards, so their number may change at a restart. Where a partition that exists lies is
not decided here: it is where its directory is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32


def shard_of(topic_id: str, partition: int, shards: int) -> int:
    """Consecutive partitions of a topic go to consecutive shards, beginning at one that the topic's id chooses."""
    return (crc32(topic_id.encode()) + partition) % shards


def placed(partitions: int, counts: Mapping[str, int], free_bytes: Mapping[str, int]) -> list[str]:
    """The directory of each new partition: the one with the fewest, on a tie the one with the most free bytes.

    `counts` are those that each directory has already; it names the directories there are, in their order.
    """
    having = dict(counts)
    chosen = []
    for _ in range(partitions):
        directory = min(having, key=lambda one: (having[one], -free_bytes.get(one, 0)))
        having[directory] += 1
        chosen.append(directory)
    return chosen
