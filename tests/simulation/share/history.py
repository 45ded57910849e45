"""What callers of a share group were given, and what they answered. A record is (partition, offset)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import inf

from gateway.groups.share.values import Outcome

Record = tuple[int, int]

DELAY_MS = 200  # of a record that was released once


@dataclass(eq=False)
class Taken:
    """The records of one lock, each with the number of its delivery. `until`: the caller may work so long at least."""

    caller: str
    lock: str
    hosting: int
    asked_at: float
    answered_at: float
    until: float
    records: dict[Record, int]


@dataclass(eq=False)
class Settling:
    """One outcome of some records of a lock. `answered_at` is inf without an answer; `tries` counts its requests.

    `hosting`: the coordinator that stored it.
    """

    taken: Taken
    outcome: Outcome
    records: frozenset[Record]
    asked_at: float
    answered_at: float = inf
    refused: frozenset[Record] = frozenset()
    tries: int = 0
    hosting: int = 0

    @property
    def settled(self) -> frozenset[Record]:
        """The records that surely have this outcome."""
        return self.records - self.refused if self.answered_at < inf else frozenset()

    @property
    def maybe_settled(self) -> frozenset[Record]:
        """The records that may have it: a request without an answer may have given it to them."""
        return self.settled if self.answered_at < inf and self.tries == 1 else self.records


@dataclass
class ShareHistory:
    """`handed`: when coordinators gave a record to each lock, also if the answer was lost."""

    deliveries_max: int
    is_ordered: bool
    taken: list[Taken] = field(default_factory=list)
    settlings: list[Settling] = field(default_factory=list)
    handed: defaultdict[Record, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
