"""Which shard of a node owns a partition. Pure; disk layout does not depend on it, so N may change at a restart."""

from __future__ import annotations

from zlib import crc32


def shard_of(topic_id: str, partition: int, shards: int) -> int:
    """Consecutive partitions of a topic go to consecutive shards, beginning at one that the topic's id chooses."""
    return (crc32(topic_id.encode()) + partition) % shards
