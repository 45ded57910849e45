"""Judges of a history: acknowledged values are in the log, once, in order; rejected ones are not.

Pure. The numbers are those of the checkers C1 to C11, which apply to every fault test. Each value belongs to one append
only; this is asserted first, since all checks depend on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.faults.history import Append, History, Log, Outcome


class Place(NamedTuple):
    partition: int
    offset: int


class Finding(NamedTuple):
    """`kind`: lost, duplicated, inverted, aborted_read, misplaced or unknown_value."""

    kind: str
    detail: str


def findings(history: History, log: Log) -> list[Finding]:
    """Return all findings."""
    places = _places(log)
    given = [value for append in history.appends for value in append.values]
    assert len(given) == len(set(given)), "the test itself gave a value twice"
    return [
        *_lost(history, places),
        *_duplicated(places),
        *_out_of_sequence(history, places),
        *_against_time(history),
        *_aborted_reads(history, places),
        *_misplaced(history, log),
        *_unknown(set(given), places),
    ]


def assert_exactly_once(history: History, log: Log, story: str = "") -> None:
    found = findings(history, log)
    shown = "\n".join(f"  {one.kind}: {one.detail}" for one in found[:20])
    assert found == [], f"{story}: {len(found)} findings\n{shown}"


def _lost(history: History, places: dict[str, list[Place]]) -> Iterator[Finding]:
    """C1, C2: an acknowledged value is missing."""
    for append in _with(history, Outcome.OK):
        for value in append.values:
            if value not in places:
                yield Finding("lost", f"{append.producer}: {value} was acknowledged")


def _duplicated(places: dict[str, list[Place]]) -> Iterator[Finding]:
    """C4: one value at two offsets."""
    for value, found in places.items():
        if len(found) > 1:
            yield Finding("duplicated", f"{value} is at {', '.join(f'{p}/{o}' for p, o in found)}")


def _out_of_sequence(history: History, places: dict[str, list[Place]]) -> Iterator[Finding]:
    """C11: in each partition a producer's values are in its send order. Only the first offset of a value counts."""
    last: dict[tuple[str, int], tuple[int, str]] = {}
    for append in history.appends:
        for value in append.values:
            for place in places.get(value, [])[:1]:
                before, other = last.get((append.producer, place.partition), (-1, ""))
                if place.offset < before:
                    text = f"{append.producer}: {value} at {place.partition}/{place.offset}, {other} at {before}"
                    yield Finding("inverted", text)
                last[append.producer, place.partition] = max((before, other), (place.offset, value))


def _against_time(history: History) -> Iterator[Finding]:
    """C7: an acknowledged offset is above every offset that was acknowledged before the send began.

    A retried append, or one that got its offset as a duplicate, may have been stored early, but never before its first
    send, so this holds for all.
    """
    known = [one for one in _with(history, Outcome.OK) if one.base_offset is not None and one.returned_ns is not None]
    for partition in {one.partition for one in known}:
        here = [one for one in known if one.partition == partition]
        ends = sorted((one.returned_ns or 0, _end(one), one.producer) for one in here)
        highest, by, position = -1, "", 0
        for one in sorted(here, key=lambda one: one.invoked_ns):
            while position < len(ends) and ends[position][0] < one.invoked_ns:
                highest, by = max((highest, by), ends[position][1:])
                position += 1
            assert one.base_offset is not None
            if one.base_offset < highest:
                text = f"{one.producer} got {partition}/{one.base_offset}; {by} had the log up to {highest} before"
                yield Finding("inverted", text)


def _aborted_reads(history: History, places: dict[str, list[Place]]) -> Iterator[Finding]:
    """C3: a definitely rejected value is in the log."""
    for append in _with(history, Outcome.FAIL):
        for value in append.values:
            if value in places:
                yield Finding("aborted_read", f"{append.producer}: {value} was refused")


def _misplaced(history: History, log: Log) -> Iterator[Finding]:
    """C5: the log has another value at an acknowledged offset."""
    for append in _with(history, Outcome.OK):
        if append.base_offset is not None and append.partition is not None:
            there = log.get(append.partition, [])[append.base_offset : _end(append)]
            if list(there) != list(append.values):
                yield Finding("misplaced", f"{append.producer}: not at {append.partition}/{append.base_offset}")


def _unknown(given: set[str], places: dict[str, list[Place]]) -> Iterator[Finding]:
    for value in places.keys() - given:
        yield Finding("unknown_value", f"no producer sent {value[:100]}")


def _with(history: History, outcome: Outcome) -> Iterator[Append]:
    return (append for append in history.appends if append.outcome is outcome)


def _end(append: Append) -> int:
    assert append.base_offset is not None
    return append.base_offset + len(append.values)


def _places(log: Log) -> dict[str, list[Place]]:
    places: dict[str, list[Place]] = defaultdict(list)
    for partition, values in log.items():
        for offset, value in enumerate(values):
            places[value].append(Place(partition, offset))
    return dict(places)
