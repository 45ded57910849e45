"""The verdict over one run: what the checkers of the simulator find, and for how long nothing was acknowledged.

Pure. acks=1 promises nothing over a failover, so what it lost is counted and is no finding; everything else that is
read, refused or acknowledged counts as the checkers say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from tests.simulation.checkers import FinalLog, Guarantee, check_all
from tests.simulation.history import History, Produced

LOST = "C1 lost", "C2 unseen"  # off the leader's disk, over HTTP
DUPLICATE = "C4"
GAP_S = 0.5  # between acknowledgements of a partition that nothing has befallen; shorter is no window


@dataclass
class Verdict:
    """Of one run. Counts are of records, `pauses_s` has one for each injection."""

    fault: str
    seed: int
    seconds: float
    commit: str
    acknowledged: int = 0
    lost: int = 0
    duplicates: int = 0
    refused: int = 0
    unknown: int = 0
    acknowledged_acks_1: int = 0
    lost_acks_1: int = 0
    client_errors: int = 0
    pauses_s: list[float] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)

    @property
    def others(self) -> int:
        """Findings that are neither losses nor duplicates."""
        return sum(not one.startswith((*LOST, DUPLICATE)) for one in self.findings)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(verdict: Verdict, history: History, logs: list[FinalLog], injections: Sequence[float]) -> None:
    """Fills in the verdict. `logs`: all in-sync replicas of every partition, each leader's first."""
    leaders: dict[str, FinalLog] = {}
    for log in logs:
        leaders.setdefault(log.partition, log)
    found = check_all(history, [], logs, Guarantee())
    found += [f"C14 nobody was acknowledged in {name}" for name in leaders if not _acked(history.produced, name)]
    verdict.findings += found
    verdict.lost = max(sum(one.startswith(kind) for one in found) for kind in LOST)
    verdict.duplicates = sum(one.startswith(DUPLICATE) for one in found)
    counts = Counter[tuple[str, str]]()
    for one in history.produced:
        counts[one.acks, one.outcome] += len(one.values)
    verdict.acknowledged, verdict.acknowledged_acks_1 = counts["all", "ok"], counts["1", "ok"]
    verdict.refused = counts["all", "fail"] + counts["1", "fail"]
    verdict.unknown = counts["all", "info"] + counts["1", "info"]
    verdict.lost_acks_1 = lost_of_acks_1(history.produced, leaders)
    verdict.pauses_s = pauses(history.produced, injections)


def lost_of_acks_1(produced: Iterable[Produced], leaders: dict[str, FinalLog]) -> int:
    there = {value for log in leaders.values() for value in log.records.values()}
    return sum(
        value not in there for one in produced if one.acks == "1" and one.outcome == "ok" for value in one.values
    )


def pauses(produced: Sequence[Produced], injections: Sequence[float]) -> list[float]:
    """For each injection the longest time in which some partition acknowledged nothing to anybody, 0 if there was none.

    A window belongs to the first injection within it, else to the last one before it.
    """
    longest = [0.0] * len(injections)
    for partition in {one.partition for one in produced}:
        for before, after in pairwise(_acked(produced, partition)):
            if after - before < GAP_S or not injections or after < injections[0]:
                continue
            within = [n for n, at in enumerate(injections) if before <= at <= after]
            number = within[0] if within else max(n for n, at in enumerate(injections) if at <= before)
            longest[number] = max(longest[number], after - before)
    return longest


def _acked(produced: Iterable[Produced], partition: str) -> list[float]:
    """When acks=all was answered."""
    ok = (one for one in produced if one.partition == partition and one.acks == "all" and one.outcome == "ok")
    return sorted(one.done_at for one in ok)
