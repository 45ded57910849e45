"""What producers did and were told, and what the log has in the end. Values; judged by tests/faults/checkers.py.

An append is one logical batch, however often it was sent. Its outcome is what its producer knows in the end.
OK: stored, by an answer. FAIL: certainly not stored, since every attempt was refused as such. INFO: nobody knows.
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
    """Of one attempt, by its answer. No answer is INFO.

    1. Success. 2. A batch older than the window was stored, long ago. 3. The node promises that nothing was done.
    """
    if 200 <= status < 300 and status != 207:
        return Outcome.OK
    if problem.get("code") == "duplicate_older_than_window":
        return Outcome.OK
    return Outcome.FAIL if problem.get("no_side_effects") is True else Outcome.INFO


@dataclass
class Append:
    """`partition` and `base_offset` are None while, or where, nobody has told them. Times are of one clock."""

    producer: str
    values: Sequence[str]
    invoked_ns: int
    partition: int | None = None
    outcome: Outcome = Outcome.INFO
    base_offset: int | None = None
    returned_ns: int | None = None

    def ok(self, partition: int | None, base_offset: int | None) -> None:
        """Stored; at an unknown place when the answer says only that it is a duplicate."""
        self.outcome, self.partition, self.base_offset = Outcome.OK, partition, base_offset
        self.returned_ns = monotonic_ns()


@dataclass
class History:
    """Appends of each producer in the order in which it gave them."""

    appends: list[Append] = field(default_factory=list)

    def begin(self, producer: str, values: Sequence[str], partition: int | None = None) -> Append:
        """To be called before anything of it is sent."""
        one = Append(producer, values, monotonic_ns(), partition)
        self.appends.append(one)
        return one


Log = Mapping[int, Sequence[str]]  # by partition, the values from offset 0 on
