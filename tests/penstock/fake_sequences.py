"""The producer state of one partition, implemented as simply as the rules allow.

The rules are those of the contract: duplicates among the last 16 batches, gaps, newer and older epochs, and 0 as the
first number of an unknown producer. Used by the fake node and as the twin in tests/penstock/producer/test_sequences.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

WINDOW = 16
MODULUS = 2**31


class Verdict(NamedTuple):
    code: str  # new, duplicate, or the problem's code
    value: int | None = None  # base offset of a duplicate, expected sequence of a gap, epoch of a fenced one


@dataclass
class Known:
    epoch: int
    # all batches of the epoch: sequence, count, base offset
    batches: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def expected(self) -> int:
        if not self.batches:
            return 0
        sequence, count, _ = self.batches[-1]
        return (sequence + count) % MODULUS


class FakeSequences:
    def __init__(self) -> None:
        self.known: dict[int, Known] = {}

    def judge(self, producer_id: int, epoch: int, sequence: int, count: int) -> Verdict:
        known = self.known.get(producer_id)
        if known is None:
            return Verdict("sequence_gap", 0) if sequence else Verdict("new")
        if epoch < known.epoch:
            return Verdict("producer_fenced", known.epoch)
        if epoch > known.epoch:
            return Verdict("new") if sequence == 0 else Verdict("sequence_gap", 0)
        if sequence == known.expected:
            return Verdict("new")
        for age, (first, stored, base) in enumerate(reversed(known.batches)):
            if (first, stored) == (sequence, count):
                return Verdict("duplicate", base) if age < WINDOW else Verdict("duplicate_older_than_window")
        return Verdict("sequence_gap", known.expected)

    def note(self, producer_id: int, epoch: int, sequence: int, count: int, base: int) -> None:
        known = self.known.get(producer_id)
        if known is None or known.epoch < epoch:
            known = self.known[producer_id] = Known(epoch)
        known.batches.append((sequence, count, base))
