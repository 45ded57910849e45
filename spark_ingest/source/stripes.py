"""Groups the slices of a topic into tasks that each take the same share of many partitions. Pure.

Records of one hour are at about the same share of each partition's new records. Tasks of one partition after the other
would each have rows of every hour, and a file for each. A stripe has the rows of a few hours, from all its partitions.

A set of neighbouring partitions is striped together: at least PARTITIONS_LEAST and a task's bytes, so that slices stay
large. A boundary between stripes is cut by offset, as in slices.py.

Invariant: the groups cover exactly the given slices; a group has one range of each of its partitions; the ranges of a
partition are in the order of the groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from spark_ingest.source.slices import RECORDS_MAX, Slice, cut

PARTITIONS_LEAST = 16  # a task of 128 MiB reads at least about 8 MiB of each


def cut_across(slices: Iterable[Slice], target_bytes: int, records_max: int = RECORDS_MAX) -> list[tuple[Slice, ...]]:
    """Groups slices, given in the order of (partition, offset), into target_bytes or a little more."""
    groups: list[tuple[Slice, ...]] = []
    for partitions in _sets(slices, target_bytes):
        for stripe in _stripes(partitions, target_bytes, records_max):
            groups += cut(stripe, target_bytes, records_max)
    return groups


def _sets(slices: Iterable[Slice], target_bytes: int) -> Iterator[list[list[Slice]]]:
    """Yields the slices of each partition, in sets of partitions."""
    taken: list[list[Slice]] = []
    taken_bytes = 0
    for _, some in groupby(slices, lambda piece: piece.partition):
        taken.append(list(some))
        taken_bytes += sum(piece.weight_bytes for piece in taken[-1])
        if len(taken) >= PARTITIONS_LEAST and taken_bytes >= target_bytes:
            yield taken
            taken, taken_bytes = [], 0
    if taken:
        yield taken


def _stripes(partitions: Sequence[Sequence[Slice]], target_bytes: int, records_max: int) -> list[list[Slice]]:
    """Returns as few stripes as the limits allow. Their last one may need another cut, by a few records."""
    weight_bytes = sum(piece.weight_bytes for mine in partitions for piece in mine)
    records = sum(piece.end - piece.start for mine in partitions for piece in mine)
    rounded = max(records_max - len(partitions), 1)  # a share of each partition is rounded up
    count = max(-(-weight_bytes // target_bytes), -(-records // rounded), 1)
    if len(partitions) == 1 or count * len(partitions) > records:
        return [[piece for mine in partitions for piece in mine]]
    return [[piece for mine in partitions for piece in _share(mine, at, count)] for at in range(count)]


def _share(slices: Sequence[Slice], at: int, count: int) -> Iterator[Slice]:
    """Yields the part `at` of `count` equal parts of one partition's slices."""
    base, records = slices[0].start, slices[-1].end - slices[0].start
    start, end = base + records * at // count, base + records * (at + 1) // count
    for piece in slices:
        first, last = max(piece.start, start), min(piece.end, end)
        if first < last:
            yield msgspec.structs.replace(piece, start=first, end=last)
