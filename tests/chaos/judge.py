"""The verdict on one run: the findings of the simulator's checkers, and the longest times without an acknowledgement.

Pure. acks=1 promises nothing over a failover, so its losses are counted and are not findings. All other reads,
rejections and acknowledgements are judged by the checkers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import Any

from tests.chaos.clients.streams import Streamed
from tests.checking.checkers import FinalLog, Guarantee, check_all
from tests.checking.group_checkers import Figures
from tests.checking.history import History, Produced

LOST = "C1 lost", "C2 unseen"  # from the leader's disk; over HTTP
DUPLICATE = "C4"
WRONG_IDS_MAX = 3  # per stream: one is enough for a diagnosis
GAP_S = 0.5  # normal gap between acknowledgements of a healthy partition; shorter gaps are not outages


@dataclass
class Verdict:
    """The verdict on one run. Counts are of records; `pauses_s` has one entry for each injection."""

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
    streamed: int = 0
    reads: int = 0
    old_reads: int = 0
    oldest_read_s: float = 0.0
    pauses_s: list[float] = field(default_factory=list)
    groups: Figures | None = None
    findings: list[str] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)

    @property
    def others(self) -> int:
        """Return the findings that are neither losses nor duplicates."""
        return sum(not finding.startswith((*LOST, DUPLICATE)) for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(
    verdict: Verdict,
    history: History,
    logs: list[FinalLog],
    injections: Sequence[float],
    streams: Sequence[Streamed] = (),
) -> None:
    """Return the verdict. `logs`: all in-sync replicas of every partition, each leader's first."""
    leaders: dict[str, FinalLog] = {}
    for log in logs:
        leaders.setdefault(log.partition, log)
    findings = check_all(history, [], logs, Guarantee())
    findings += [f"C14 no record was acknowledged in {name}" for name in leaders if not _acked(history.produced, name)]
    findings += [finding for stream in streams for finding in stream_findings(stream, leaders)]
    verdict.findings += findings
    verdict.streamed = sum(stream.events for stream in streams)
    verdict.reads, ages = old_reads(history)
    verdict.old_reads, verdict.oldest_read_s = len(ages), max(ages, default=0.0)
    verdict.lost = max(sum(finding.startswith(kind) for finding in findings) for kind in LOST)
    verdict.duplicates = sum(finding.startswith(DUPLICATE) for finding in findings)
    counts = Counter[tuple[str, str]]()
    for write in history.produced:
        counts[write.acks, write.outcome] += len(write.values)
    verdict.acknowledged, verdict.acknowledged_acks_1 = counts["all", "ok"], counts["1", "ok"]
    verdict.refused = counts["all", "fail"] + counts["1", "fail"]
    verdict.unknown = counts["all", "info"] + counts["1", "info"]
    verdict.lost_acks_1 = lost_of_acks_1(history.produced, leaders)
    verdict.pauses_s = pauses(history.produced, injections)


def stream_findings(stream: Streamed, leaders: dict[str, FinalLog]) -> list[str]:
    """C16: no stream stops permanently, every stream gets every record, and its ids match its position. Gaps belong to
    C6.
    """
    if stream.ended:
        return [f"C16 stream ended permanently: {stream.name}: {stream.ended}"]
    findings = [f"C16 wrong id: {stream.name}: {wrong}" for wrong in stream.wrong_ids[:WRONG_IDS_MAX]]
    for number, position in stream.positions.items():
        end = leaders[f"{stream.topic}/{number}"].high_watermark
        if position < end:
            findings.append(f"C16 stream never resumed: {stream.name} is at {position} of {end} in partition {number}")
    return findings


def kept_findings(before: Mapping[Path, int], after: Mapping[Path, int]) -> list[str]:
    """K1: nodes whose coordination store is lost keep every log file, whole. Each in bytes."""
    gone = [f"K1 data is gone: {path} had {size} bytes" for path, size in before.items() if path not in after]
    return gone + [
        f"K1 data is gone: {path} has {after[path]} of {size} bytes"
        for path, size in before.items()
        if after.get(path, size) < size
    ]


def old_reads(history: History) -> tuple[int, list[float]]:
    """Return the number of polls, and for each poll with a stale high watermark, how old that watermark was.

    A stale read is allowed: cluster.md says how old a read may be.
    """
    seen_ends: dict[str, list[tuple[float, int]]] = {}
    for poll in history.polled:
        seen_ends.setdefault(poll.partition, []).append((poll.at, poll.high_watermark))
    rising: dict[str, tuple[list[float], list[int]]] = {}
    for partition, ends_by_time in seen_ends.items():
        times: list[float] = []
        ends: list[int] = []
        for at, end in sorted(ends_by_time):
            if not ends or end > ends[-1]:
                times.append(at)
                ends.append(end)
        rising[partition] = times, ends
    ages, reads = [], 0
    for poll in history.polled:
        if isnan(poll.asked_at):
            continue
        reads += 1
        times, ends = rising[poll.partition]
        first_above = bisect_right(ends, poll.high_watermark)
        if first_above < len(ends) and times[first_above] < poll.asked_at:
            ages.append(poll.asked_at - times[first_above])
    return reads, ages


def lost_of_acks_1(produced: Iterable[Produced], leaders: dict[str, FinalLog]) -> int:
    there = {value for log in leaders.values() for value in log.records.values()}
    return sum(
        value not in there
        for write in produced
        if write.acks == "1" and write.outcome == "ok"
        for value in write.values
    )


def pauses(produced: Sequence[Produced], injections: Sequence[float]) -> list[float]:
    """Return for each injection the longest time in which some partition acknowledged nothing, 0 without one.

    A gap belongs to the first injection within it, else to the last one before it.
    """
    longest = [0.0] * len(injections)
    for partition in {write.partition for write in produced}:
        for before, after in pairwise(_acked(produced, partition)):
            if after - before < GAP_S or not injections or after < injections[0]:
                continue
            within = [n for n, at in enumerate(injections) if before <= at <= after]
            number = within[0] if within else max(n for n, at in enumerate(injections) if at <= before)
            longest[number] = max(longest[number], after - before)
    return longest


def _acked(produced: Iterable[Produced], partition: str) -> list[float]:
    """Return the times of acks=all acknowledgements."""
    ok = (write for write in produced if write.partition == partition and write.acks == "all" and write.outcome == "ok")
    return sorted(write.done_at for write in ok)
