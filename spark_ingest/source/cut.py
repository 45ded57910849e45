"""Cuts segments into groups of slices of about equal bytes, by what manifests tell and nothing else. Pure.

A group may reach over several partitions, so that many small ones share a file; it is always a run in the order of
(partition, offset). Cuts fall on offsets: a segment that is larger than the target is cut evenly by offset, as if all
its records had one size. Where a cut lies in the bytes is found when the slice is read (scan.py).

Invariant: groups are in order, and cover exactly the slices that were given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

_SLACK = 8  # an eighth
RECORDS_MAX = 1 << 20  # small or well compressed records: bounds a task's memory where bytes do not


class Slice(msgspec.Struct, frozen=True, array_like=True):
    """The records from `start` to before `end` of one segment object, which holds base_offset to end_offset."""

    partition: int
    key: str
    size_bytes: int
    base_offset: int
    end_offset: int
    start: int
    end: int

    @property
    def weight_bytes(self) -> int:
        """Its share of the object, taking all records for equally large."""
        return self.size_bytes * (self.end - self.start) // (self.end_offset - self.base_offset)


class Range(NamedTuple):
    """The records of one partition from `start` to before `end`."""

    partition: int
    start: int
    end: int


Place = tuple[int, int]  # a partition and an offset in it


def ranges_of(slices: Iterable[Slice]) -> list[Range]:
    """What slices cover. Those of one partition follow each other without a gap."""
    ranges: list[Range] = []
    for one in slices:
        if ranges and ranges[-1].partition == one.partition:
            assert ranges[-1].end == one.start
            ranges[-1] = ranges[-1]._replace(end=one.end)
        else:
            ranges.append(Range(one.partition, one.start, one.end))
    return ranges


def between(ranges: Iterable[Range], begin: Place, end: Place) -> list[Range]:
    """What of ranges lies from one place up to, not including, another, in the order of (partition, offset)."""
    found = []
    for one in ranges:
        start = max(begin, (one.partition, one.start))
        stop = min(end, (one.partition, one.end))
        if start < stop and start[0] == stop[0]:
            found.append(Range(one.partition, start[1], stop[1]))
    return found


def fair_target(total_bytes: int, target_bytes: int, least_bytes: int, parallelism: int) -> int:
    """What a group should weigh so that groups come out equal, and there is one for every core if that is worth it."""
    wanted = min(parallelism, total_bytes // least_bytes)
    return -(-total_bytes // max(wanted, -(-total_bytes // target_bytes), 1)) or 1


def cut(slices: Iterable[Slice], target_bytes: int, records_max: int = RECORDS_MAX) -> list[tuple[Slice, ...]]:
    """Groups of slices, of the target's weight or a little more. Input is in order, as is the outcome.

    The slack keeps partitions of nearly equal size from leaving a small group behind.
    """
    most_bytes = target_bytes + target_bytes // _SLACK
    groups: list[tuple[Slice, ...]] = []
    group: list[Slice] = []
    taken_bytes = taken_records = 0
    for one in slices:
        for piece in split(one, target_bytes, records_max):
            records = piece.end - piece.start
            if group and (taken_bytes + piece.weight_bytes > most_bytes or taken_records + records > records_max):
                groups.append(tuple(group))
                group, taken_bytes, taken_records = [], 0, 0
            group.append(piece)
            taken_bytes += piece.weight_bytes
            taken_records += records
    return [*groups, tuple(group)] if group else groups


def split(one: Slice, target_bytes: int, records_max: int) -> list[Slice]:
    """Equal parts of a slice, as few as keep each within the target."""
    records = one.end - one.start
    parts = max(-(-one.weight_bytes // target_bytes), -(-records // records_max), 1)
    parts = min(parts, records)
    cuts = [one.start + records * at // parts for at in range(parts + 1)]
    return [msgspec.structs.replace(one, start=start, end=end) for start, end in pairwise(cuts)]


def bounded(groups: Sequence[tuple[Slice, ...]], limit_bytes: int) -> list[tuple[Slice, ...]]:
    """The first groups of up to so many bytes; at least one, so that work always goes on."""
    taken: list[tuple[Slice, ...]] = []
    total = 0
    for group in groups:
        total += sum(one.weight_bytes for one in group)
        if taken and total > limit_bytes:
            break
        taken.append(group)
    return taken
