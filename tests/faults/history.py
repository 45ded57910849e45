"""The operations and results of producers, and the final log. Values; tests/faults/checkers.py judges them.

An append is one logical batch, with any number of attempts. Its outcome is the producer's final knowledge. OK: an
answer says that it is stored. FAIL: certainly not stored, since every attempt was rejected. INFO: unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic_ns
from typing import Any


class Outcome(Enum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


def outcome_of(status: int, problem: Mapping[str, Any]) -> Outcome:
    """Return the outcome of one attempt by its answer; without an answer it is INFO.

    1. Success. 2. A batch older than the window was stored before. 3. The node promises that nothing was stored.
    """
    if 200 <= status < 300 and status != 207:
        return Outcome.OK
    if problem.get("code") == "duplicate_older_than_window":
        return Outcome.OK
    return Outcome.FAIL if problem.get("no_side_effects") is True else Outcome.INFO


@dataclass
class Append:
    """`partition` and `base_offset` are None while unknown. All times are of one clock."""

    producer: str
    values: Sequence[str]
    invoked_ns: int
    partition: int | None = None
    outcome: Outcome = Outcome.INFO
    base_offset: int | None = None
    returned_ns: int | None = None

    def ok(self, partition: int | None, base_offset: int | None) -> None:
        """Record it as stored; the offset is unknown if the answer only says that it is a duplicate."""
        self.outcome, self.partition, self.base_offset = Outcome.OK, partition, base_offset
        self.returned_ns = monotonic_ns()


@dataclass
class History:
    """The appends of each producer in send order."""

    appends: list[Append] = field(default_factory=list)

    def begin(self, producer: str, values: Sequence[str], partition: int | None = None) -> Append:
        """Call this before any part of the append is sent."""
        one = Append(producer, values, monotonic_ns(), partition)
        self.appends.append(one)
        return one


Log = Mapping[int, Sequence[str]]  # by partition, the values from offset 0
