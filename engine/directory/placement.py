"""Chooses the shard of a partition, the data directory of a new one, and moves between directories. Pure.

Disk layout does not depend on shards, so their number may change at a restart. An existing partition stays in the
directory where it is found, until a move that an operator requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from zlib import crc32


def shard_of(topic_id: str, partition: int, shards: int) -> int:
    """Returns the shard of a partition: consecutive ones use consecutive shards, from a hash of the topic id on."""
    return (crc32(topic_id.encode()) + partition) % shards


def assign_directories(partitions: int, counts: Mapping[str, int], free_bytes: Mapping[str, int]) -> list[str]:
    """Returns the directory of each new partition: the one with the most free bytes for each partition that it has.

    A new partition is empty, so that only the counts keep many new ones from all going to one directory. `counts` are
    the partitions of each directory; its keys are all directories, in their order. On a tie the fewest count.
    """
    having = dict(counts)
    chosen = []
    for _ in range(partitions):
        directory = max(having, key=lambda name: (free_bytes.get(name, 0) / (having[name] + 1), -having[name]))
        having[directory] += 1
        chosen.append(directory)
    return chosen


class Room(NamedTuple):
    """The file system of a data directory."""

    free_bytes: int
    capacity_bytes: int


class Placed(NamedTuple):
    """A partition in a data directory."""

    topic: str
    partition: int
    directory: str
    size_bytes: int


class PlannedMove(NamedTuple):
    """A move to another data directory of the node."""

    topic: str
    partition: int
    source: str
    target: str
    size_bytes: int


def plan_moves(rooms: Mapping[str, Room], placed: Iterable[Placed], gap_bytes_min: int) -> list[PlannedMove]:
    """Returns moves after which the free bytes of the directories differ by less, with few and large moves.

    Each takes the largest partition of the directory with the least room that fits half of the gap to the one with the
    most. Gaps below `gap_bytes_min` stay. Directories of equal capacity and free bytes count as one file system, within
    which a move would free nothing.
    """
    free = {name: room.free_bytes for name, room in rooms.items()}
    for name in list(free):  # only the first directory of a file system
        if any(rooms[other] == rooms[name] for other in free if other < name):
            del free[name]
    sorted_by_size = sorted(placed, key=lambda one: (-one.size_bytes, one.topic, one.partition))
    in_directory = {name: [one for one in sorted_by_size if one.directory == name and one.size_bytes] for name in free}
    moves: list[PlannedMove] = []
    while len(free) > 1:
        source, target = min(free, key=lambda name: (free[name], name)), max(free, key=lambda name: (free[name], name))
        gap = free[target] - free[source]
        chosen = next((one for one in in_directory[source] if one.size_bytes <= gap // 2), None)
        if gap < gap_bytes_min or chosen is None:
            break
        in_directory[source].remove(chosen)
        free[source] += chosen.size_bytes
        free[target] -= chosen.size_bytes
        moves.append(PlannedMove(chosen.topic, chosen.partition, source, target, chosen.size_bytes))
    return moves
