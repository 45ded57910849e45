"""Groups slices of segments into tasks of about equal bytes, from manifests alone. Pure.

A group is in the order of (partition, offset). It may span several partitions, so that many small ones share a file. A
segment larger than the target is split evenly by offset, as if all its records had one size. scan.py finds the byte
position of a slice when it reads it.

Invariant: groups are in order and cover exactly the given slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

_SLACK = 8  # an eighth
RECORDS_MAX = 1 << 20  # bounds the memory of a task whose records are small or well compressed


class Slice(msgspec.Struct, frozen=True, array_like=True):
    """Offsets `start` to `end` (exclusive) of one segment object, which has base_offset to end_offset."""

    partition: int
    key: str
    size_bytes: int
    base_offset: int
    end_offset: int
    start: int
    end: int

    @property
    def weight_bytes(self) -> int:
        """The estimated bytes of the slice: its share of the offsets of the object."""
        return self.size_bytes * (self.end - self.start) // (self.end_offset - self.base_offset)


class Range(NamedTuple):
    """Offsets `start` to `end` (exclusive) of one partition."""

    partition: int
    start: int
    end: int


PartitionOffset = tuple[int, int]  # a partition and an offset in it


def ranges_of(slices: Iterable[Slice]) -> list[Range]:
    """Returns the ranges of slices. The slices of a partition must be contiguous."""
    ranges: list[Range] = []
    for piece in slices:
        if ranges and ranges[-1].partition == piece.partition:
            assert ranges[-1].end == piece.start
            ranges[-1] = ranges[-1]._replace(end=piece.end)
        else:
            ranges.append(Range(piece.partition, piece.start, piece.end))
    return ranges


def between(ranges: Iterable[Range], begin: PartitionOffset, end: PartitionOffset) -> list[Range]:
    """Clips ranges to `begin` to `end` (exclusive), in the order of (partition, offset)."""
    pieces = []
    for span in ranges:
        start = max(begin, (span.partition, span.start))
        stop = min(end, (span.partition, span.end))
        if start < stop and start[0] == stop[0]:
            pieces.append(Range(span.partition, start[1], stop[1]))
    return pieces


def target_group_bytes(total_bytes: int, target_bytes: int, least_bytes: int, parallelism: int) -> int:
    """Returns the bytes for each group: equal groups, one for each core unless that makes them too small."""
    groups = min(parallelism, total_bytes // least_bytes)
    return -(-total_bytes // max(groups, -(-total_bytes // target_bytes), 1)) or 1


def cut(slices: Iterable[Slice], target_bytes: int, records_max: int = RECORDS_MAX) -> list[tuple[Slice, ...]]:
    """Groups slices into target_bytes or a little more, in order.

    The slack avoids a small last group when partitions have nearly equal sizes.
    """
    most_bytes = target_bytes + target_bytes // _SLACK
    groups: list[tuple[Slice, ...]] = []
    group: list[Slice] = []
    taken_bytes = taken_records = 0
    for slice_ in slices:
        for piece in split(slice_, target_bytes, records_max):
            records = piece.end - piece.start
            if group and (taken_bytes + piece.weight_bytes > most_bytes or taken_records + records > records_max):
                groups.append(tuple(group))
                group, taken_bytes, taken_records = [], 0, 0
            group.append(piece)
            taken_bytes += piece.weight_bytes
            taken_records += records
    return [*groups, tuple(group)] if group else groups


def split(slice_: Slice, target_bytes: int, records_max: int) -> list[Slice]:
    """Splits a slice into equal parts, as few as the target allows."""
    records = slice_.end - slice_.start
    parts = max(-(-slice_.weight_bytes // target_bytes), -(-records // records_max), 1)
    parts = min(parts, records)
    cuts = [slice_.start + records * at // parts for at in range(parts + 1)]
    return [msgspec.structs.replace(slice_, start=start, end=end) for start, end in pairwise(cuts)]


def bounded(
    groups: Sequence[tuple[Slice, ...]], limit_bytes: int, limit_records: int | None = None
) -> list[tuple[Slice, ...]]:
    """Returns the first groups up to the limits, and at least one, so that a job always makes progress."""
    taken: list[tuple[Slice, ...]] = []
    total = records = 0
    for group in groups:
        total += sum(piece.weight_bytes for piece in group)
        records += sum(piece.end - piece.start for piece in group)
        if taken and (total > limit_bytes or (limit_records is not None and records > limit_records)):
            break
        taken.append(group)
    return taken
