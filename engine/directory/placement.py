"""Chooses the shard of a partition, and the data directory of a new one. Pure.

Disk layout does not depend on shards, so their number may change at a restart. An existing partition stays in the
directory where it is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32


def shard_of(topic_id: str, partition: int, shards: int) -> int:
    """Returns the shard of a partition: consecutive ones use consecutive shards, from a hash of the topic id on."""
    return (crc32(topic_id.encode()) + partition) % shards


def assign_directories(partitions: int, counts: Mapping[str, int], free_bytes: Mapping[str, int]) -> list[str]:
    """Returns the directory of each new partition: the one with the fewest, on a tie the one with the most free bytes.

    `counts` are the partitions of each directory; its keys are all directories, in their order.
    """
    having = dict(counts)
    chosen = []
    for _ in range(partitions):
        directory = min(having, key=lambda directory_id: (having[directory_id], -free_bytes.get(directory_id, 0)))
        having[directory] += 1
        chosen.append(directory)
    return chosen
