"""The output of a run: progress and notes on standard error, the summary or one JSON document on standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click
import msgspec

from spark_ingest.plan import UNSEEN, Plan, Recipe
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.failures import Failures
from spark_ingest.protocol.lost import counted, lost_of, rows_of
from spark_ingest.protocol.results import TaskResult

_PROGRESS_SECONDS = 10  # between progress lines without a terminal


class Report:
    """The listener of a run. Counts the commits of this run, not those of a concurrent one."""

    def __init__(
        self, recipe_of: Callable[[str], Recipe], *, is_quiet: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._recipe_of = recipe_of
        self._is_quiet = is_quiet
        self._clock = clock
        self._started = self._printed = clock()
        self._plan: Plan | None = None
        self.commits: list[Commit] = []
        self.others: list[Commit] = []
        self.failures: Failures = {}
        self.unregistered = ""  # why
        self.is_limited = False

    def on_plan(self, plan: Plan, *, is_resumed: bool) -> None:
        self._plan = plan
        topics = len(plan.schemas)
        size_bytes = sum(piece.weight_bytes for task in plan.tasks for piece in task.slices)
        what = f"{plan.record_range:,} offsets of {_plural(topics, 'topic')}, {format_bytes(size_bytes)}"
        how = "resuming plan" if is_resumed else "plan"
        self.note(f"{how} {plan.number}: {what}, in {_plural(len(plan.tasks), 'task')}")
        self._printed = self._clock()
        for lost in (*lost_of(plan.skipped, plan.positions), *plan.deleted):
            self.note(f"lost: {lost}")
        for gone in lost_of(plan.unseen, plan.positions, UNSEEN):
            self.note(f"not ingested: {gone}")
        for topic, mixed in sorted(plan.mixed.items()):
            for column in mixed:
                self.note(f"{topic}: {column}")
        if is_resumed and any(plan.recipe_of(topic) != self._recipe_of(topic) for topic in plan.schemas):
            self.note("the plan was made with different options; they apply until it is committed")

    def progress(self, tasks: int, rows: int) -> None:
        if self._plan is None:
            return  # Spark starts before there is a plan
        text = f"{tasks} of {_plural(len(self._plan.tasks), 'task')}, {rows:,} rows"
        now = self._clock()
        if sys.stderr.isatty() and not self._is_quiet:
            self._printed = now
            click.echo(f"\r\x1b[K{_bar(tasks, len(self._plan.tasks))} {text}", err=True, nl=False)
        elif now - self._printed >= _PROGRESS_SECONDS:
            self._printed = now
            self.note(text)

    def on_commit(self, commit: Commit, *, is_ours: bool) -> None:
        if sys.stderr.isatty() and not self._is_quiet:
            click.echo("\r\x1b[K", err=True, nl=False)
        (self.commits if is_ours else self.others).append(commit)
        if not is_ours:
            self.note(f"commit {commit.number} was stored by another run, with {commit.rows:,} rows")

    def on_unregistered(self, why: str) -> None:
        self.unregistered = why
        self.note(f"not registered, so retention in the store does not wait for this job: {why}")

    def on_limit(self) -> None:
        self.is_limited = True
        self.note("stopped at a limit of the run; the next run goes on there")

    def on_failures(self, failures: Failures) -> None:
        self.failures = dict(failures)

    def note(self, text: str) -> None:
        """Print a line for the operator."""
        if not self._is_quiet:
            click.echo(text, err=True)

    def document(self, job: str, output_url: str, head: Commit | None) -> dict[str, Any]:
        """Returns the JSON document of the run."""
        topics = topic_totals(self.commits)
        lost = [loss for commit in self.commits for loss in commit.lost]
        unseen = [span for commit in self.commits for span in commit.unseen_ranges]
        return {
            "job": job,
            "output": output_url,
            **{
                name: sum(totals_of_topic[name] for totals_of_topic in topics.values())
                for name in ("rows", "dead_letters", "files", "bytes")
            },
            "seconds": round(self._clock() - self._started, 3),
            "commits": [commit.number for commit in self.commits],
            "commits_of_others": [commit.number for commit in self.others],
            "head": head.number if head else None,
            "topics": topics,
            "failed": {topic: str(error) for topic, error in sorted(self.failures.items())},
            "unregistered": self.unregistered or None,
            "limited": self.is_limited,
            "lost_records": counted(lost),
            "lost": rows_of(lost),
            "unseen_records": counted(unseen),
            "unseen": rows_of(unseen),
        }


def topic_totals(commits: list[Commit]) -> dict[str, dict[str, Any]]:
    totals: dict[str, dict[str, Any]] = {}
    for commit in commits:
        for result in commit.results:
            totals_of_topic = totals.setdefault(
                result.topic, dict.fromkeys(_COUNTS, 0) | {"task_seconds": 0.0, "reasons": {}, "misfits": {}}
            )
            for name, count_of in _COUNTS.items():
                totals_of_topic[name] += count_of(result)
            totals_of_topic["task_seconds"] = round(totals_of_topic["task_seconds"] + result.seconds, 3)
            for name, misfits in result.misfits.items():
                totals_of_topic["misfits"][name] = totals_of_topic["misfits"].get(name, 0) + misfits.count
            for reason, count in result.reasons.items():
                totals_of_topic["reasons"][reason] = totals_of_topic["reasons"].get(reason, 0) + count
    return totals


_COUNTS: dict[str, Callable[[TaskResult], int]] = {
    "rows": lambda result: result.rows,
    "dead_letters": lambda result: result.bad,
    "absent_offsets": lambda result: result.absent - result.filtered,
    "filtered": lambda result: result.filtered,
    "event_time_fallbacks": lambda result: result.fallbacks,
    "files": lambda result: len(result.files),
    "bytes": lambda result: sum(file.size_bytes for file in result.files),
    "read_bytes": lambda result: result.read_bytes,
}


def print_document(document: dict[str, Any]) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def print_summary(document: dict[str, Any]) -> None:
    """Print a line for each topic and one for all of them."""
    for topic, totals in sorted(document["topics"].items()):
        rate = (
            f"{totals['rows'] / totals['task_seconds'] / 1000:,.0f} k rows/s per task" if totals["task_seconds"] else ""
        )
        click.echo(f"{topic}: {_counts(totals)}" + (f", {rate}" if rate else ""))
        for line in _notes_on(totals):
            click.echo(f"  {line}")
    head = f"commit {document['head']}" if document["head"] else "no commit yet"
    seconds = f"{document['seconds']:.1f} s"
    if document["lost"]:
        click.echo(f"{document['lost_records']:,} records or more were lost before ingestion, see above")
    if document["unseen"]:
        click.echo(f"{document['unseen_records']:,} offsets were gone before this job first read their partition")
    if not document["commits"]:
        click.echo(f"0 rows: no new records, {head}, {seconds}")
    else:
        click.echo(f"{_counts(document)}, {head}, {seconds}")
    if gathered := document.get("gathered", {}).get("files_replaced"):
        click.echo(f"{_plural(gathered, 'small file')} became {document['gathered']['files']:,}")


def _counts(totals: dict[str, Any]) -> str:
    return f"{totals['rows']:,} rows in {_plural(totals['files'], 'file')}, {format_bytes(totals['bytes'])}"


def _notes_on(totals: dict[str, Any]) -> list[str]:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(totals["reasons"].items()))
    lines = [
        (totals["dead_letters"], f"{totals['dead_letters']:,} dead letters: {reasons}"),
        (totals["event_time_fallbacks"], f"{totals['event_time_fallbacks']:,} rows use the record's timestamp"),
        (
            totals["misfits"],
            f"values of another type than their column, in _extra: {format_misfits(totals['misfits'])}",
        ),
        (totals["filtered"], f"{totals['filtered']:,} records were left out by filters"),
        (totals["absent_offsets"], f"{totals['absent_offsets']:,} offsets without a record"),
    ]
    return [line for count, line in lines if count]


def format_misfits(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def format_bytes(size_bytes: int) -> str:
    size, units = float(size_bytes), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while size >= 1000 and unit != "TB":
        size, unit = size / 1000, next(units)
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"


def _bar(done: int, total: int, width: int = 24) -> str:
    filled = width * done // max(total, 1)
    return "━" * filled + "╌" * (width - filled)


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
