"""Checkers of consumer groups: nothing missed or skipped, no repeats after a commit, one owner, no stale commit. Pure.

Times are those of clients. A finding means that no order of events inside the requests could be right.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from tests.checking.group_history import GroupHistory, Poll, ShareHistory


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


def check_group(history: GroupHistory, ends: Mapping[int, int]) -> list[str]:
    """Return findings. `ends`: the high watermark of each partition; the log begins at 0."""
    return [text for partition, end in ends.items() for text in _partition(history, partition, end)]


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
        meanwhile = [poll for poll in polls[since:until] if poll.asked_at > delivery.answered_at]
        lost = [later for later in meanwhile if later.member != poll.member]
        if not lost:
            continue
        end, others = (
            delivery.offsets[partition][-1] + 1,
            [
                other_poll.commits.offsets[partition][-1] + 1
                for other_poll in history.polls
                if other_poll.commits is not None
                and other_poll.commits.offsets.get(partition)
                and other_poll.asked_at <= poll.answered_at
                and (other_poll.commits is not delivery or other_poll.asked_at < lost[0].answered_at)
            ],
        )
        if end > max(others, default=0):
            text = f"{poll.member} committed {end} of partition {partition} at {poll.answered_at:.3f}"
            yield f"G6 stale commit: {text}; {lost[0].member} got it at {lost[0].answered_at:.3f}"


def committed_ends(history: GroupHistory) -> dict[int, int]:
    """Returns the position of each partition whose commit was answered."""
    ends: dict[int, int] = {}
    for poll in history.polls:
        if poll.answered_at < inf and poll.commits is not None:
            for partition, offsets in poll.commits.offsets.items():
                ends[partition] = max(ends.get(partition, 0), offsets[-1] + 1)
    return ends


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


def figures_of(history: GroupHistory, share: ShareHistory) -> Figures:
    delivered = Counter(
        (partition, offset)
        for poll in history.polls
        for partition, offsets in poll.offsets.items()
        for offset in offsets
    )
    acquired = Counter(record for acquisition in share.acquisitions for record in acquisition.records)
    steady = sum(
        len(acquisition.records)
        for acquisition in share.acquisitions
        if share.is_steady(acquisition.asked_at, min(acquisition.held_until, acquisition.until))
    )
    again = delivered.total() - len(delivered), acquired.total() - len(acquired)
    return Figures(delivered.total(), again[0], acquired.total(), again[1], steady)
