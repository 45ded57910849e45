"""Sets of offsets of a topic, as sorted ranges that do not touch each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from spark_ingest.source.slices import Range


def union(ranges: Iterable[Range]) -> list[Range]:
    """Returns the offsets of any range, in the order of (partition, start)."""
    found: list[Range] = []
    for one in sorted(ranges):
        if one.start >= one.end:
            continue
        if found and found[-1].partition == one.partition and one.start <= found[-1].end:
            found[-1] = found[-1]._replace(end=max(found[-1].end, one.end))
        else:
            found.append(one)
    return found


def common(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """Returns the offsets that are in both sets."""
    left, right = union(ranges), union(others)
    found: list[Range] = []
    at = other_at = 0
    while at < len(left) and other_at < len(right):
        one, other = left[at], right[other_at]
        if one.partition == other.partition and max(one.start, other.start) < min(one.end, other.end):
            found.append(Range(one.partition, max(one.start, other.start), min(one.end, other.end)))
        if (one.partition, one.end) <= (other.partition, other.end):
            at += 1
        else:
            other_at += 1
    return found


def without(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """Returns the offsets of `ranges` that are not in `others`."""
    removed = union(others)
    found: list[Range] = []
    at = 0
    for one in union(ranges):
        start = one.start
        while at < len(removed) and (removed[at].partition, removed[at].end) <= (one.partition, one.start):
            at += 1
        for other in removed[at:]:
            if other.partition != one.partition or other.start >= one.end:
                break
            if start < other.start:
                found.append(Range(one.partition, start, other.start))
            start = max(start, other.end)
        if start < one.end:
            found.append(Range(one.partition, start, one.end))
    return found


def offset_count(ranges: Iterable[Range]) -> int:
    return sum(one.end - one.start for one in ranges)
