"""Runs jobs without Spark, and reads back what they published."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from engine.errors import EngineError
from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import ObjectStore
from spark_ingest.commands.ingest import ingest
from spark_ingest.output import names
from spark_ingest.output.retained import load_retained
from spark_ingest.output.rewrites import Rewrites
from spark_ingest.plan import Plan, Recipe, TaskSpec
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.failures import FailedTask, Failures, Limits, Outcome
from spark_ingest.protocol.history import History
from spark_ingest.protocol.planner import Selection
from spark_ingest.protocol.runner import Components, Job, run
from spark_ingest.protocol.task import run_task
from spark_ingest.protocol.verify import Findings, verify
from spark_ingest.protocol.verify_deep import verify_deep
from spark_ingest.run_limits import RunLimits

NOW_MS = 1_700_000_000_000
Stores = tuple[ObjectStore, ObjectStore]  # of segments, and the output
# The first of the operations that a test ends at, one after the other; it goes on with each third one behind it.
THIRDS = [pytest.param(first, marks=[pytest.mark.long] if first > 1 else []) for first in (1, 2, 3)]
_NONCES = count(1)  # of all runs and rewrites: no two have the same


def new_id() -> str:
    return f"nonce-{next(_NONCES)}"


def invoke(*arguments: object, **more: Any) -> Result:
    """Run `penstock ingest` in this process."""
    return CliRunner().invoke(ingest, [str(one) for one in arguments], **more)


class Remembering:
    """A listener that keeps what it receives."""

    def __init__(self) -> None:
        self.plans: list[tuple[Plan, bool]] = []
        self.commits: list[Commit] = []
        self.others: list[Commit] = []
        self.failures: Failures = {}
        self.unregistered: list[str] = []
        self.is_limited = False

    def on_plan(self, plan: Plan, *, is_resumed: bool) -> None:
        self.plans.append((plan, is_resumed))

    def on_commit(self, commit: Commit, *, is_ours: bool) -> None:
        (self.commits if is_ours else self.others).append(commit)

    def on_unregistered(self, why: str) -> None:
        self.unregistered.append(why)

    def on_limit(self) -> None:
        self.is_limited = True

    def on_failures(self, failures: Failures) -> None:
        self.failures = dict(failures)

    @property
    def rows(self) -> int:
        return sum(commit.rows for commit in self.commits)


_numbers = itertools.count()


def another_output() -> MemoryStore:
    """Returns a store with a URL of its own: a job whose output has lost its commits is refused."""
    output = MemoryStore()
    output.url = f"memory://{next(_numbers)}"
    return output


def run_job(
    source: ObjectStore,
    output: ObjectStore,
    *,
    topics: str = ".*",
    name: str = "default",
    bad_percent_max: float = 0.1,
    bad_percents_max: dict[str, float] | None = None,
    misfit_max_percent: float = 100,
    limits: Limits | None = None,
    listener: Remembering | None = None,
    recipe: Recipe | None = None,
    execute: Callable[[Sequence[TaskSpec]], Sequence[Outcome]] | None = None,
    run_limits: RunLimits | None = None,
    **selection: Any,
) -> Remembering:
    listener = listener or Remembering()

    def execute_here(orders: Sequence[TaskSpec]) -> list[Outcome]:
        return [_run_task(order, source, output) for order in orders]

    parts = Components(
        source,
        output,
        execute or execute_here,
        lambda: 2,
        listener,
        new_id=new_id,
        now_ms=lambda: NOW_MS,
    )
    selected = Selection(re.compile(topics), **({"task_bytes": 1 << 11} | selection))
    limits = limits or Limits(bad_percent_max, bad_percents_max or {}, misfit_max_percent, selected.widens)
    run(Job(name, selected, recipe or Recipe(), limits, run_limits or RunLimits()), parts)
    return listener


def _run_task(order: TaskSpec, source: ObjectStore, output: ObjectStore) -> Outcome:
    try:
        return run_task(order, source, output, clock=lambda: 0.0, puts_at_once=1)
    except EngineError as error:
        if error.retryable:
            raise
        return FailedTask(order.task.topic, error)


def listed_files(output: ObjectStore, topic: str = "flights") -> list[str]:
    """Return the files that a listing of the table shows, without the commits."""
    return [one.key for one in output.list(names.table_prefix(topic))]


def committed_files(output: ObjectStore, job: str = "default") -> list[str]:
    return sorted(
        file.key for commit in History(output, job).commits() for result in commit.results for file in result.files
    )


def read_rows(output: ObjectStore, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of files, by partition and offset."""
    rows = [row for key in keys for row in pq.read_table(pa.BufferReader(output.get(key))).to_pylist()]
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


def table_rows(output: ObjectStore, topic: str = "flights") -> list[dict[str, Any]]:
    return read_rows(output, listed_files(output, topic))


def dead_letters(output: ObjectStore, topic: str = "flights") -> list[dict[str, Any]]:
    return read_rows(output, [one.key for one in output.list(names.dead_letters_prefix(topic))])


def assert_sound(output: ObjectStore) -> Findings:
    """Assert that verify finds no problem, in the files too; return its counts."""
    findings, commits = verify(output, "default")
    covers, effect = load_retained(output, "default").covers, Rewrites(output, "default").effect()
    assert [*findings.problems, *verify_deep(output, commits, covers, effect)] == []
    return findings


def drive_at_once(drive: Callable[[], object]) -> None:
    """Call a function in two threads that start together."""
    barrier = threading.Barrier(2)

    def start() -> None:
        barrier.wait(60)
        drive()

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)


def head_of(output: ObjectStore) -> Commit:
    """Return the newest commit, which is there."""
    head = History(output, "default").head()
    assert head is not None
    return head
