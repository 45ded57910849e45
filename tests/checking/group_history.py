"""What members of a group and callers of a share group have seen. A record is (partition, offset)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from gateway.groups.share.values import Outcome

Record = tuple[int, int]
Event = tuple[float, str, dict[str, object]]


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


@dataclass
class GroupHistory:
    session_s: float
    polls: list[Poll] = field(default_factory=list)

    def events(self) -> list[Event]:
        """Return all requests by the time when they were sent, for people."""
        events: list[Event] = []
        for poll in self.polls:
            event = {"member": poll.member, "answered_at": poll.answered_at, "held_until": poll.held_until}
            commits = None if poll.commits is None else poll.commits.asked_at
            ends = {str(number): (offsets[0], offsets[-1]) for number, offsets in poll.offsets.items()}
            events.append((poll.asked_at, "member", {**event, "commits": commits, "offsets": ends}))
        return events


@dataclass(eq=False)
class Acquisition:
    """The records of one lock, each with the number of its delivery. `until`: the lock ends then at the earliest.

    `held_until`: when the caller gave them all up. `hosting`: the coordinator, 0 if it is not known.
    """

    caller: str
    asked_at: float
    until: float
    answered_at: float = inf
    held_until: float = inf
    records: Mapping[Record, int] = field(default_factory=dict)
    lock: str = ""
    hosting: int = 0


@dataclass(eq=False)
class Settlement:
    """One outcome of some records of a lock. `answered_at` is inf without an answer; `tries` counts its requests.

    `ended`: those that are refused since they have an outcome: the same one, if its first answer was lost.
    """

    acquisition: Acquisition
    outcome: Outcome
    records: frozenset[Record]
    asked_at: float
    answered_at: float = inf
    refused: frozenset[Record] = frozenset()
    ended: frozenset[Record] = frozenset()
    tries: int = 1

    @property
    def settled(self) -> frozenset[Record]:
        """The records that surely have this outcome."""
        return self.records - self.refused if self.answered_at < inf else frozenset()

    @property
    def expired(self) -> frozenset[Record]:
        """The records that are refused since their lock is over."""
        return self.refused - self.ended


@dataclass
class ShareHistory:
    """`handed`: when coordinators gave a record to each lock, also if the answer was lost.

    `delay_s`: of a record that was released once, 0 if it is not judged. `unsteady`: times in which the coordinator may
    have been replaced, which ends all locks.
    """

    deliveries_max: int
    is_ordered: bool = False
    delay_s: float = 0.0
    acquisitions: list[Acquisition] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    handed: defaultdict[Record, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    unsteady: list[tuple[float, float]] = field(default_factory=list)

    def is_steady(self, begin: float, end: float) -> bool:
        return not any(start <= end and begin <= stop for start, stop in self.unsteady)

    def have_one_coordinator(self, acquisition: Acquisition, other: Acquisition) -> bool:
        """True if both got their records from the same coordinator."""
        begin, end = min(acquisition.asked_at, other.asked_at), max(acquisition.answered_at, other.answered_at)
        return acquisition.hosting == other.hosting and self.is_steady(begin, end)

    def maybe_settled(self, settlement: Settlement) -> frozenset[Record]:
        """Return the records that may have the outcome: a request without an answer may have given it to them.

        A coordinator that was replaced may have stored it, and the next one refuses it then.
        """
        is_certain = (
            settlement.answered_at < inf
            and settlement.tries <= 1
            and self.is_steady(settlement.asked_at, settlement.answered_at)
        )
        return settlement.settled | settlement.ended if is_certain else settlement.records

    def events(self) -> list[Event]:
        """Return all requests by the time when they were sent, for people."""
        events: list[Event] = [
            (acquisition.asked_at, "acquired", {**vars(acquisition), "records": sorted(acquisition.records.items())})
            for acquisition in self.acquisitions
        ]
        for settlement in self.settlements:
            fields = {"caller": settlement.acquisition.caller, "acquired_at": settlement.acquisition.asked_at}
            fields |= {"outcome": settlement.outcome.name, "answered_at": settlement.answered_at}
            fields |= {name: sorted(getattr(settlement, name)) for name in ("settled", "ended", "expired")}
            events.append((settlement.asked_at, "outcome", fields))
        return events + [(begin, "unsteady", {"until": end}) for begin, end in self.unsteady]
