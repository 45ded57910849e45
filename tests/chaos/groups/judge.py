"""Judges groups: nothing missed or skipped, no repeats after a commit, one owner, one holder, one outcome that stays.

Pure.

Times are those of clients. A finding means that no order of events inside the requests could be right.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from tests.chaos.groups.history import Acquisition, GroupHistory, Outcome, Poll, Record


@dataclass
class Figures:
    """Counts of records. `repeated`: deliveries after the first. `steady`: those whose lock is judged."""

    delivered: int = 0
    repeated: int = 0
    acquired: int = 0
    acquired_again: int = 0
    steady: int = 0

    def __str__(self) -> str:
        return (
            f"groups: {self.delivered} delivered, {self.repeated} of them again; share: {self.acquired} acquired, "
            f"{self.acquired_again} of them again, {self.steady} under a steady coordinator"
        )


def judge_groups(
    history: GroupHistory, ends: Mapping[int, int], *, has_share: bool = True
) -> tuple[list[str], Figures]:
    """Returns findings and figures. `ends`: the high watermark of each partition; the log begins at 0."""
    found = [text for partition, end in ends.items() for text in _partition(history, partition, end)]
    if not has_share:
        return found, _figures(history)
    found += _share(history, {(partition, offset) for partition, end in ends.items() for offset in range(end)})
    return found, _figures(history)


def _partition(history: GroupHistory, partition: int, end: int) -> Iterator[str]:
    polls = [poll for poll in history.polls if poll.offsets.get(partition) and poll.answered_at < inf]
    polls.sort(key=lambda poll: poll.answered_at)
    seen = {offset for poll in polls for offset in poll.offsets[partition]}
    if missed := sorted(set(range(end)) - seen):
        yield f"G1 missed: {len(missed)} records of partition {partition} reached no member, the first at {missed[0]}"
    if beyond := sorted(seen - set(range(end))):
        yield f"G1 beyond: offset {beyond[0]} of partition {partition} was delivered, the log ends at {end}"
    maybe = _Commits(history.polls, partition, "asked_at")
    surely = _Commits((poll for poll in history.polls if poll.answered_at < inf), partition, "answered_at")
    for poll in polls:
        offsets = poll.offsets[partition]
        first = offsets[0]
        if offsets != tuple(range(first, first + len(offsets))):
            yield f"G2 hole: {poll.member} got {offsets} of partition {partition}"
        if first > (committed := maybe.until(poll.answered_at)):
            yield f"G2 skipped: {poll.member} began at {partition} {first}; nothing above {committed} was committed"
        if first < (committed := surely.until(poll.asked_at)):
            yield f"G3 repeated: {poll.member} began at {partition} {first} after a commit of {committed} was answered"
    yield from _two_owners(polls, partition, history.session_s)
    yield from _stale_commits(history, polls, partition)


def _stale_commits(history: GroupHistory, polls: Sequence[Poll], partition: int) -> Iterator[str]:
    """A commit of what another member got meanwhile moves nothing. `polls`: by the time of the answer."""
    times = [poll.answered_at for poll in polls]
    for poll in history.polls:
        delivery = poll.commits
        if delivery is None or poll.answered_at == inf or not delivery.offsets.get(partition):
            continue
        since = bisect_right(times, delivery.answered_at)
        until = bisect_right(times, poll.asked_at)
        meanwhile = [one for one in polls[since:until] if one.asked_at > delivery.answered_at]
        lost = [one for one in meanwhile if one.member != poll.member]
        if not lost:
            continue
        end, others = (
            delivery.offsets[partition][-1] + 1,
            [
                one.commits.offsets[partition][-1] + 1
                for one in history.polls
                if one.commits is not None
                and one.commits.offsets.get(partition)
                and one.asked_at <= poll.answered_at
                and (one.commits is not delivery or one.asked_at < lost[0].answered_at)
            ],
        )
        if end > max(others, default=0):
            text = f"{poll.member} committed {end} of partition {partition} at {poll.answered_at:.3f}"
            yield f"G6 stale commit: {text}; {lost[0].member} got it at {lost[0].answered_at:.3f}"


def committed_ends(history: GroupHistory) -> dict[int, int]:
    """Returns the position of each partition whose commit was answered."""
    found: dict[int, int] = {}
    for poll in history.polls:
        if poll.answered_at < inf and poll.commits is not None:
            for partition, offsets in poll.commits.offsets.items():
                found[partition] = max(found.get(partition, 0), offsets[-1] + 1)
    return found


class _Commits:
    """The highest committed position of a partition at a time."""

    def __init__(self, polls: Iterable[Poll], partition: int, at: str) -> None:
        done = sorted(
            (getattr(poll, at), poll.commits.offsets[partition][-1] + 1)
            for poll in polls
            if poll.commits is not None and poll.commits.offsets.get(partition)
        )
        self._times = [time for time, _ in done]
        self._ends = list(accumulate((end for _, end in done), max))

    def until(self, time: float) -> int:
        count = bisect_right(self._times, time)
        return self._ends[count - 1] if count else 0


def _two_owners(polls: Sequence[Poll], partition: int, session_s: float) -> Iterator[str]:
    """A member owns a partition until its next request or its session's end. `polls`: by the time of the answer."""
    for number, poll in enumerate(polls):
        until = min(poll.held_until, poll.asked_at + session_s)
        for other in polls[number + 1 :]:
            if other.answered_at >= until:
                break
            if other.member != poll.member and poll.answered_at < other.asked_at + session_s:
                yield (
                    f"G4 two owners: {poll.member} had partition {partition} from {poll.answered_at:.3f} to {until:.3f}"
                    f", {other.member} got it at {other.answered_at:.3f}"
                )


def _share(history: GroupHistory, records: set[Record]) -> Iterator[str]:
    accepts = [one for one in history.outcomes if one.is_accept]
    ended = {record for one in accepts for record in _maybe_settled(one, history)}
    if lost := sorted(records - ended):
        yield f"H1 no outcome: {len(lost)} records were never accepted, the first {lost[0]}"
    accepted: dict[Record, Outcome] = {}
    for one in sorted(accepts, key=lambda one: one.answered_at):
        for record in one.settled:
            first = accepted.setdefault(record, one)
            if first.acquisition is not one.acquisition:
                who = f"{first.acquisition.caller} and {one.acquisition.caller}"
                yield f"H2 two outcomes: {record} was accepted for {who}"
    by_record: defaultdict[Record, list[Acquisition]] = defaultdict(list)
    for acquisition in sorted(history.acquisitions, key=lambda one: one.answered_at):
        for record in acquisition.records:
            by_record[record].append(acquisition)
            if record in accepted and accepted[record].answered_at < acquisition.asked_at:
                yield f"H3 delivered again: {acquisition.caller} got {record}, which was accepted before it asked"
    for record, holders in by_record.items():
        yield from _two_holders(record, holders, history)
        yield from _uncounted(record, holders, history)
    yield from _taken_back(history)


def _maybe_settled(one: Outcome, history: GroupHistory) -> frozenset[Record]:
    """All of its records if a coordinator that was replaced may have settled them: the next one refuses them then."""
    is_certain = one.answered_at < inf and _is_steady(history, one.asked_at, one.answered_at)
    return one.settled | one.ended if is_certain else frozenset(one.acquisition.records)


def _two_holders(record: Record, holders: Sequence[Acquisition], history: GroupHistory) -> Iterator[str]:
    for number, one in enumerate(holders):
        until = min(one.held_until, one.asked_at + one.lock_s)
        for other in holders[number + 1 :]:
            if other.answered_at >= until:
                break
            is_later = one.answered_at < other.asked_at + other.lock_s
            if is_later and _is_steady(history, min(one.asked_at, other.asked_at), other.answered_at):
                yield (
                    f"H4 two holders: {one.caller} held {record} from {one.answered_at:.3f} to {until:.3f}, "
                    f"{other.caller} got it at {other.answered_at:.3f}"
                )


def _uncounted(record: Record, holders: Sequence[Acquisition], history: GroupHistory) -> Iterator[str]:
    """Each delivery has a higher number than those that were answered before it was asked for."""
    for number, other in enumerate(holders):
        before = [one for one in holders[:number] if one.answered_at < other.asked_at]
        for one in before[-1:]:
            is_counted = one.records[record] < other.records[record]
            if not is_counted and _is_steady(history, one.asked_at, other.answered_at):
                numbers = f"{one.records[record]} to {one.caller}, then {other.records[record]} to {other.caller}"
                yield f"H5 not counted: {record} was delivery {numbers}"


def _taken_back(history: GroupHistory) -> Iterator[str]:
    """An outcome that was answered is never refused later because its lock is over, whatever coordinator answers."""
    answered: defaultdict[int, list[Outcome]] = defaultdict(list)
    for one in sorted(history.outcomes, key=lambda one: one.asked_at):
        for first in answered[id(one.acquisition)]:
            if first.answered_at < one.asked_at and (lost := first.settled & one.expired):
                yield f"H6 taken back: {one.acquisition.caller} settled {min(lost)}, then its lock was answered as over"
        answered[id(one.acquisition)].append(one)


def _is_steady(history: GroupHistory, begin: float, end: float) -> bool:
    return not any(start <= end and begin <= stop for start, stop in history.unsteady)


def _figures(history: GroupHistory) -> Figures:
    delivered = Counter(
        (partition, offset)
        for poll in history.polls
        for partition, offsets in poll.offsets.items()
        for offset in offsets
    )
    acquired = Counter(record for one in history.acquisitions for record in one.records)
    steady = sum(
        len(one.records)
        for one in history.acquisitions
        if _is_steady(history, one.asked_at, min(one.held_until, one.asked_at + one.lock_s))
    )
    again = delivered.total() - len(delivered), acquired.total() - len(acquired)
    return Figures(delivered.total(), again[0], acquired.total(), again[1], steady)
