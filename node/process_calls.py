"""The arguments of calls between the processes of one node: the supervisor, its shards, the worker.

gateway/routing/calls.py has those of calls that other nodes make too.
"""

from __future__ import annotations

from msgspec import Struct

from engine.directory.ceilings import Ceiling
from engine.log.damaged_ranges import Damage


class Ready(Struct, frozen=True, array_like=True):
    """A process serves. `producer_floor` is above all producer ids in its logs."""

    index: int
    producer_floor: int


class CreateTopic(Struct, frozen=True, array_like=True):
    name: str
    partitions: int
    replication_factor: int
    overrides: dict[str, object]
    ceiling: Ceiling | None = None


class AlterTopic(Struct, frozen=True, array_like=True):
    name: str
    overrides: dict[str, object]
    partitions: int | None
    ceiling: Ceiling | None = None


class ClosePartitions(Struct, frozen=True, array_like=True):
    topic: str
    partitions: list[int]


class DirectoryFailed(Struct, frozen=True, array_like=True):
    directory_id: str
    detail: str


class PartitionMoved(Struct, frozen=True, array_like=True):
    """A partition that has another data directory now."""

    topic_id: str
    topic: str
    partition: int
    directory_id: str


class PartitionNumber(Struct, frozen=True, array_like=True):
    """A partition in calls to a process that does not need the topic's name."""

    topic_id: str
    number: int


class TieredPartition(Struct, frozen=True, array_like=True):
    """A partition in calls of the worker to its shard."""

    topic_id: str
    topic: str
    number: int


class SealedLog(TieredPartition, frozen=True, array_like=True):
    """A request for the sealed segments above an offset."""

    above: int


class EndOffset(TieredPartition, frozen=True, array_like=True):
    """The end of the records that the store has, or that it has expired."""

    end_offset: int


class SegmentFields(Struct, frozen=True, array_like=True):
    """A SegmentFile."""

    base_offset: int
    end_offset: int
    path: str
    size_bytes: int
    last_append_ms: int
    crc32c: int | None
    is_damaged: bool


class ReplaceSegments(TieredPartition, frozen=True, array_like=True):
    """A NewSegment: a compacted file of that size and checksum, for the segments that it was made of."""

    replaced: tuple[SegmentFields, ...]
    size_bytes: int
    crc32c: int
    removed: int


class CompactionRound(TieredPartition, frozen=True, array_like=True):
    """A round that has ended: the partition is compacted below `end`, without tombstones below `expired_below`."""

    end: int
    expired_below: int
    generation: tuple[int, int]


class FileFields(Struct, frozen=True, array_like=True):
    """A SealedFile."""

    path: str
    base_offset: int
    end_offset: int
    size_bytes: int
    is_damaged: bool


class Scrubbed(TieredPartition, frozen=True, array_like=True):
    """The Finding of a sealed file."""

    file: FileFields
    scrubbed_bytes: int
    damage: tuple[Damage, ...]


class Repair(TieredPartition, frozen=True, array_like=True):
    """A copy of a damaged segment, at a path, to replace it."""

    base_offset: int
    path: str
