"""The figures of a job's report: what its commits counted, and the files that are part of its tables now. No plots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.tiering.store.store import ObjectStore
from spark_ingest.inspection.completeness import TopicCompleteness
from spark_ingest.output import names
from spark_ingest.protocol.commit import Commit, not_recovered
from spark_ingest.protocol.history import History
from spark_ingest.protocol.results import TimeCounts
from spark_ingest.upkeep.rewrite import live_files

PERIOD_MS = 600_000
PARTS = ("rows", "dead letters", "filtered", "without a record", "lost", "not ingested yet")


@dataclass(slots=True)
class TopicFigures:
    """The counts of a topic. `partitions` has offsets by partition, `files` the sizes of live data files."""

    counts: Counter[str] = field(default_factory=Counter)
    partitions: Counter[int] = field(default_factory=Counter)
    misfits: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    files: list[int] = field(default_factory=list)
    task_seconds: float = 0.0
    held: str = ""


@dataclass(frozen=True, slots=True)
class Age:
    """How old records were when a commit ingested them, in seconds by the middle of their ten minutes."""

    commit: int
    committed_ms: int
    median_s: float
    oldest_s: float


@dataclass(slots=True)
class Figures:
    """The figures of commits `first` to `last`. `events` counts rows by ten minutes of the event since 1970."""

    job: str
    output: str
    first: int
    last: int
    committed_ms: int
    commits: int = 0
    topics: dict[str, TopicFigures] = field(default_factory=dict)
    ages: list[Age] = field(default_factory=list)
    events: Counter[int] = field(default_factory=Counter)
    rows_of_commits: list[tuple[int, int, int]] = field(default_factory=list)  # number, time, rows
    lag: dict[str, Any] | None = None
    complete: dict[str, TopicCompleteness] = field(default_factory=dict)

    def of(self, topic: str) -> TopicFigures:
        return self.topics.setdefault(topic, TopicFigures())


def figures_of(output: ObjectStore, job: str, newest: int | None, lag: dict[str, Any] | None) -> Figures | None:
    """Returns the figures of all commits, or of the newest ones; None without a commit. `lag` is of `ingest lag`."""
    history = History(output, job)
    commits = list(history.commits())
    if not commits:
        return None
    head = commits[-1]
    chosen = commits[-newest:] if newest else commits
    figures = Figures(job, output.url, chosen[0].number, head.number, head.committed_ms, len(chosen), lag=lag)
    for commit in chosen:
        _add(figures, commit)
    effect = history.effect()
    for topic, lifted in effect.lifted.items():
        remain = figures.of(topic).misfits - Counter(lifted)  # rewrites do not name the commit of the values
        figures.of(topic).misfits = remain
    for lost in not_recovered(chosen):
        figures.of(lost.topic).counts["lost"] += lost.records or 0
    for topic, lag_of_topic in (lag or {"topics": {}})["topics"].items():
        figures.of(topic).counts["not ingested yet"] += lag_of_topic["lag_records"]
    for topic, held in head.held.items():
        figures.of(topic).held = held.detail
    numbers = {commit.number for commit in chosen}
    for file in live_files(output, history, effect).files:
        topic = names.topic_of(file.key)
        if file.key.startswith(names.table_prefix(topic)) and names.plan_number_of(file.key) in numbers:
            figures.of(topic).files.append(file.size_bytes)
    return figures


def _add(figures: Figures, commit: Commit) -> None:
    for result in commit.results:
        topic_figures = figures.of(result.topic)
        topic_figures.counts["rows"] += result.rows
        topic_figures.counts["dead letters"] += result.bad
        topic_figures.counts["filtered"] += result.filtered
        topic_figures.counts["without a record"] += result.absent - result.filtered
        topic_figures.task_seconds += result.seconds
        topic_figures.reasons.update(result.reasons)
        topic_figures.misfits.update({name: misfits.count for name, misfits in result.misfits.items()})
        for each in result.ranges:
            topic_figures.partitions[each.partition] += each.end - each.start
    if commit.results:
        figures.rows_of_commits.append((commit.number, commit.committed_ms, commit.rows))
    for times in commit.audit.values():
        figures.events.update({period: count for period, count in times.events.items() if period >= 0})
    age = _age(commit, commit.audit.values())
    if age is not None:
        figures.ages.append(age)


def _age(commit: Commit, counts: Iterable[TimeCounts]) -> Age | None:
    total: Counter[int] = Counter()
    for hour in counts:
        total.update({period: count for period, count in hour.records.items() if period >= 0})
    if not total:
        return None
    middle = total.total() / 2
    passed = 0
    for period in sorted(total):
        passed += total[period]
        if passed >= middle:
            break
    ages = [max(0.0, (commit.committed_ms - (at + 0.5) * PERIOD_MS) / 1000) for at in (period, min(total))]
    return Age(commit.number, commit.committed_ms, *ages)


def grouped(counts: Counter[int], bars_max: int) -> tuple[int, list[tuple[int, int]]]:
    """Returns the length of a period in minutes, and (start in ms, count) of up to `bars_max` adjacent periods."""
    if not counts:
        return 10, []
    first, last = min(counts), max(counts)
    for periods in (1, 3, 6, 18, 36, 72, 144, 432, 1008, 4320, 52560):
        if last // periods - first // periods < bars_max:
            break
    sums: Counter[int] = Counter()
    for period, count in counts.items():
        sums[period // periods] += count
    starts: Sequence[int] = range(first // periods, last // periods + 1)
    if len(starts) > bars_max:
        starts = sorted(sums)[-bars_max:]
    return periods * 10, [(at * periods * PERIOD_MS, sums[at]) for at in starts]


def size_classes(sizes: Iterable[int]) -> list[tuple[int, int]]:
    """Returns (upper bound in bytes, number of files) by powers of four from 4 KiB on."""
    classes: Counter[int] = Counter()
    for size in sizes:
        bound = 4096
        while bound < size:
            bound *= 4
        classes[bound] += 1
    if not classes:
        return []
    bounds = [min(classes)]
    while bounds[-1] < max(classes):
        bounds.append(bounds[-1] * 4)
    return [(bound, classes[bound]) for bound in bounds]
