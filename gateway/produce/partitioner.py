"""Chooses the partition of a record.

In this order: the one it names; the one that Kafka's producers choose for its key (murmur2 over the bytes, so that keys
map to the same partition as with a Kafka producer); else the one of its request's Idempotency-Key, since the request
may be repeated; else the topic's sticky one, which changes every 64 KiB or 10 ms so that records without a key make
large batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random

import murmurhash2

from engine.shard.served_topics import Topic
from gateway.http.problems import Problem

KAFKA_SEED = 0x9747B28C
STICKY_BYTES = 64 * 1024
STICKY_S = 0.010


def unknown_partition(topic: str, partition: int, partitions: int) -> Problem:
    """Returns the problem of a partition that the topic does not have."""
    text = f"topic {topic!r} has no partition {partition}; it has 0 to {partitions - 1}"
    return Problem("unknown_partition", text)


@lru_cache(maxsize=65_536)
def kafka_hash(key: bytes) -> int:
    """Returns Kafka's `toPositive(murmur2(key))`. Cached: keys repeat, and a hit costs a tenth."""
    return int(murmurhash2.murmurhash2(key, KAFKA_SEED)) & 0x7FFF_FFFF


class Partitioner:
    """Chooses partitions of one topic; for records without a key among the `preferred` ones, ascending, if any.

    Preferred are those of the shard that accepted the request: records without a key then need no call to another
    shard.
    """

    def __init__(self, topic: str, partitions: int, random: Random, preferred: Sequence[int] = ()) -> None:
        self.partitions = partitions
        self._topic = topic
        self._random = random
        self._preferred = preferred or range(partitions)
        self._sticky = random.choice(self._preferred)
        self._sticky_bytes = 0
        self._sticky_since = 0.0

    def for_key(self, key: bytes) -> int:
        return kafka_hash(key) % self.partitions

    def for_request(self, key_hash: bytes) -> int:
        """Returns the partition for records without a key, of a request with an Idempotency-Key."""
        return int.from_bytes(key_hash[:8], "big") % self.partitions

    def check(self, partition: int) -> None:
        """Raises Problem unknown_partition."""
        if partition >= self.partitions:
            raise unknown_partition(self._topic, partition, self.partitions)

    def sticky(self, size_bytes: int, now: float) -> int:
        """Returns the partition for records without a key, of this many bytes together."""
        is_stale = self._sticky_bytes >= STICKY_BYTES or now - self._sticky_since >= STICKY_S
        if is_stale and len(self._preferred) > 1:
            self._sticky = self._other_than(self._sticky)
        if is_stale:
            self._sticky_bytes, self._sticky_since = 0, now
        self._sticky_bytes += size_bytes
        return self._sticky

    def _other_than(self, partition: int) -> int:
        """Returns another partition, uniformly chosen: a choice that may repeat makes long runs on one partition."""
        other = self._random.randrange(len(self._preferred) - 1)
        return self._preferred[other if self._preferred[other] < partition else other + 1]


class Partitioners:
    """The partitioner of each topic, by id: a topic that is created again gets a new one."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._by_topic: dict[str, Partitioner] = {}

    def of(self, topic: Topic) -> Partitioner:
        """Returns the topic's partitioner: the same one until the topic has more partitions."""
        topic_id, count = topic.record.topic_id, topic.record.partitions
        partitioner = self._by_topic.get(topic_id)
        if partitioner is None or partitioner.partitions != count:
            preferred = sorted(number for number in topic.partitions if number < count)
            partitioner = Partitioner(topic.record.name, count, self._random, preferred)
            self._by_topic[topic_id] = partitioner
        return partitioner

    def among(self, topic: Topic, partitions: int) -> Partitioner:
        """Returns a partitioner that places records as when the topic had `partitions` partitions."""
        if partitions == topic.record.partitions:
            return self.of(topic)
        return Partitioner(topic.record.name, partitions, self._random)

    def remove(self, topic_id: str) -> None:
        """No-op if the topic has no partitioner."""
        self._by_topic.pop(topic_id, None)
