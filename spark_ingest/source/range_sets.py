"""Sets of offsets of a topic, as sorted ranges that do not touch each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from spark_ingest.source.slices import Range


def union(ranges: Iterable[Range]) -> list[Range]:
    """Returns the offsets of any range, in the order of (partition, start)."""
    merged: list[Range] = []
    for span in sorted(ranges):
        if span.start >= span.end:
            continue
        if merged and merged[-1].partition == span.partition and span.start <= merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def common(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """Returns the offsets that are in both sets."""
    left, right = union(ranges), union(others)
    shared: list[Range] = []
    at = other_at = 0
    while at < len(left) and other_at < len(right):
        span, other = left[at], right[other_at]
        if span.partition == other.partition and max(span.start, other.start) < min(span.end, other.end):
            shared.append(Range(span.partition, max(span.start, other.start), min(span.end, other.end)))
        if (span.partition, span.end) <= (other.partition, other.end):
            at += 1
        else:
            other_at += 1
    return shared


def without(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """Returns the offsets of `ranges` that are not in `others`."""
    removed = union(others)
    rest: list[Range] = []
    at = 0
    for span in union(ranges):
        start = span.start
        while at < len(removed) and (removed[at].partition, removed[at].end) <= (span.partition, span.start):
            at += 1
        for other in removed[at:]:
            if other.partition != span.partition or other.start >= span.end:
                break
            if start < other.start:
                rest.append(Range(span.partition, start, other.start))
            start = max(start, other.end)
        if start < span.end:
            rest.append(Range(span.partition, start, span.end))
    return rest


def offset_count(ranges: Iterable[Range]) -> int:
    return sum(span.end - span.start for span in ranges)
