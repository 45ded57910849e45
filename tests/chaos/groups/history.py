"""What members of a group and callers of a share group have seen. A record is (partition, offset)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

Record = tuple[int, int]


@dataclass(eq=False)
class Poll:
    """One request of a member. `commits`: the poll whose token it sends. `answered_at` is inf without a good answer.

    `held_until`: when the member sent its next request, left or died.
    """

    member: str
    asked_at: float
    commits: Poll | None = None
    answered_at: float = inf
    held_until: float = inf
    offsets: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by partition


@dataclass(eq=False)
class Acquisition:
    """One acquire of a caller. `held_until`: when the caller sent an outcome of its records.

    `records`: each with its `delivery_count`.
    """

    caller: str
    asked_at: float
    lock_s: float
    answered_at: float = inf
    held_until: float = inf
    records: Mapping[Record, int] = field(default_factory=dict)


@dataclass(eq=False)
class Outcome:
    """One acknowledge of all records of an acquisition. `settled`: those that the answer does not refuse.

    `ended`: those that are refused since they have an outcome: the same one, if its first answer was lost.
    `expired`: those that are refused since the lock is over.
    """

    acquisition: Acquisition
    is_accept: bool
    asked_at: float
    answered_at: float = inf
    settled: frozenset[Record] = frozenset()
    ended: frozenset[Record] = frozenset()
    expired: frozenset[Record] = frozenset()


@dataclass
class GroupHistory:
    """`unsteady`: times in which the coordinator may have been replaced, which ends all locks."""

    session_s: float
    polls: list[Poll] = field(default_factory=list)
    acquisitions: list[Acquisition] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    unsteady: list[tuple[float, float]] = field(default_factory=list)

    def events(self) -> list[tuple[float, str, dict[str, object]]]:
        """Returns all requests by the time when they were sent, for people."""
        events: list[tuple[float, str, dict[str, object]]] = []
        for poll in self.polls:
            found = {"member": poll.member, "answered_at": poll.answered_at, "held_until": poll.held_until}
            commits = None if poll.commits is None else poll.commits.asked_at
            ends = {str(number): (offsets[0], offsets[-1]) for number, offsets in poll.offsets.items()}
            events.append((poll.asked_at, "member", {**found, "commits": commits, "offsets": ends}))
        for one in self.acquisitions:
            events.append((one.asked_at, "acquired", {**vars(one), "records": sorted(one.records.items())}))
        for outcome in self.outcomes:
            of = {"caller": outcome.acquisition.caller, "acquired_at": outcome.acquisition.asked_at}
            fields = {name: value for name, value in vars(outcome).items() if name != "acquisition"}
            events.append(
                (
                    outcome.asked_at,
                    "outcome",
                    {**of, **fields, **{name: sorted(fields[name]) for name in ("settled", "ended", "expired")}},
                )
            )
        return events + [(begin, "unsteady", {"until": end}) for begin, end in self.unsteady]
