"""Which partition a key belongs to: Kafka's default, so keys land where a Kafka producer would put them.

The node applies the same rule to records without a partition. The client applies it itself because only then it
knows the position of each record of a batch.
"""

from __future__ import annotations

from murmurhash2 import murmurhash2

_KAFKA_SEED = 0x9747B28C
_POSITIVE = 0x7FFFFFFF


def partition_of_key(key: bytes, partitions: int) -> int:
    return int(murmurhash2(key, _KAFKA_SEED) & _POSITIVE) % partitions
