"""Checkers of what workers have printed: nothing missed, and no repeats but of what a disturbed worker left. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

UNCOMMITTED_S = 5.0  # a worker commits sooner than that after it has printed, also on a busy machine


@dataclass
class Life:
    """One process of a worker. `disturbed`: when it was stopped, and when it could go on; inf: never."""

    language: str
    member: str
    printed: list[tuple[float, str]] = field(default_factory=list)
    disturbed: list[tuple[float, float]] = field(default_factory=list)

    def may_repeat(self, at: float) -> bool:
        """True if what was printed then may be uncommitted."""
        return any(begin - UNCOMMITTED_S <= at <= end + UNCOMMITTED_S for begin, end in self.disturbed)

    def is_late(self, at: float) -> bool:
        """True if it may have had what it printed then since before it was stopped: others have got it meanwhile."""
        return any(begin <= at <= end + UNCOMMITTED_S for begin, end in self.disturbed if end != inf)


def check_workers(values: Iterable[str], lives: Sequence[Life]) -> list[str]:
    """Return what is wrong."""
    printed: defaultdict[str, list[tuple[float, Life]]] = defaultdict(list)
    for life in lives:
        for at, value in life.printed:
            printed[value].append((at, life))
    expected = set(values)
    findings = [f"W1 missed: {value}" for value in sorted(expected - printed.keys())]
    findings += [f"W2 of no record: {value}" for value in sorted(printed.keys() - expected)]
    for value, times in printed.items():
        times.sort(key=lambda printed_at: printed_at[0])
        in_time = [(at, life) for at, life in times if not life.is_late(at)]
        for at, life in in_time[:-1]:
            if not life.may_repeat(at):
                who = ", ".join(f"{reader.member} at {when:.2f}" for when, reader in times)
                findings.append(f"W3 repeated: {value} by {who}; {life.member} was not disturbed")
    return findings


def repeats(lives: Sequence[Life]) -> int:
    count = sum(len(life.printed) for life in lives)
    return count - len({value for life in lives for _, value in life.printed})


def ended(life: Life, at: float) -> None:
    life.disturbed.append((at, inf))
