"""One run of a job: plan, execute, commit, until nothing is left that was there at its start. Knows no Spark.

    1 the newest commit says where the job is; if the plan behind it exists, it is taken up as it is
    2 else the next plan is made and stored, create-if-absent; whoever loses takes the winner's
    3 its tasks are executed, by whatever `execute` is; every file is created if absent, under a name fixed by the plan
    4 the commit is stored, create-if-absent; before it nothing counts, after it everything does

What a kill leaves behind, by the step that it hits:
    before 2 nothing;  2-4 a plan, perhaps some of its files: the next run makes the same files and commits;
    after 4 nothing to do: the next run begins at the new positions.
Two drivers at once take the same plan, make the same files, and one of their commits is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from engine.tiering.store.store import ObjectExists, ObjectStore
from spark_ingest.errors import IngestRefused, TooManyBadRecords
from spark_ingest.output import names
from spark_ingest.output.schema_object import schema_document
from spark_ingest.plan import GENERATION, Order, Plan, Recipe, orders
from spark_ingest.protocol.commit import Commit, abandonment_of, commit_of
from spark_ingest.protocol.history import History
from spark_ingest.protocol.planner import Selection, next_plan
from spark_ingest.protocol.task import TaskResult

Execute = Callable[[Sequence[Order]], list[TaskResult]]


class Watcher(Protocol):
    """Is told what goes on; decides nothing."""

    def planned(self, plan: Plan, *, is_resumed: bool) -> None: ...
    def committed(self, commit: Commit, *, is_ours: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """What to do. `bad_percent_max` is not part of plans: it may differ from attempt to attempt."""

    name: str
    selection: Selection
    recipe: Recipe
    bad_percent_max: float


@dataclass(frozen=True, slots=True)
class Components:
    source: ObjectStore
    output: ObjectStore
    execute: Execute
    parallelism: Callable[[], int]
    watcher: Watcher
    new_id: Callable[[], str]
    now_ms: Callable[[], int]


def run(job: Job, parts: Components) -> None:
    """Bring the tables up to what was in the store at the start. Raises IngestError kinds; then run again."""
    history = History(parts.output, job.name)
    while True:
        head = history.head()
        found = history.plan(head.number + 1 if head else 1)
        plan = found or _new_plan(job, parts, history, head)
        if plan is None:
            return
        demand_generation(plan)
        parts.watcher.planned(plan, is_resumed=found is not None)
        if history.commit(plan.number) is None:
            _carry_out(job, parts, history, head, plan)
        if found is None and not plan.is_partial:
            return


def _new_plan(job: Job, parts: Components, history: History, head: Commit | None) -> Plan | None:
    plan = next_plan(
        parts.source,
        head,
        job.name,
        job.selection,
        job.recipe,
        parallelism=parts.parallelism(),
        new_id=parts.new_id,
        now_ms=parts.now_ms(),
    )
    if plan is None:
        return None
    for topic, schema in plan.schemas.items():
        claim_table(parts.output, topic, job.name)
        key = names.schema_key(job.name, topic, schema.schema_id)
        _put_if_absent(parts.output, key, schema_document(topic, job.recipe.payload, schema))
    return history.put_plan(plan)


def _carry_out(job: Job, parts: Components, history: History, head: Commit | None, plan: Plan) -> None:
    results = parts.execute(orders(plan)) if plan.tasks else []
    assert sorted(result.task for result in results) == [task.task for task in plan.tasks]
    demand_few_bad(results, job.bad_percent_max)
    ours = commit_of(plan, head, results, parts.now_ms())
    stored = history.put_commit(ours)
    assert stored.plan_nonce == plan.nonce
    if stored.is_abandoned:
        raise IngestRefused(f"plan {plan.number} of job {plan.job} was abandoned meanwhile", hint="run again")
    parts.watcher.committed(stored, is_ours=stored is ours)


def demand_generation(plan: Plan) -> None:
    """Raises IngestRefused for a plan whose files this release would make otherwise."""
    if plan.generation != GENERATION:
        raise IngestRefused(
            f"plan {plan.number} of job {plan.job} is of code generation {plan.generation}, this is {GENERATION}",
            hint="finish it with the release that began it, or abandon it",
        )


def demand_few_bad(results: Sequence[TaskResult], percent_max: float) -> None:
    """Raises TooManyBadRecords, so that a wrong option or a broken producer is seen before anything is published."""
    bad = sum(result.bad for result in results)
    total = bad + sum(result.rows for result in results)
    if not bad or bad * 100 <= percent_max * total:
        return
    reasons: dict[str, int] = {}
    for result in results:
        for reason, count in result.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    counted = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    where = next(result.dead_letters[0].key for result in results if result.dead_letters)
    raise TooManyBadRecords(
        f"{bad} of {total} records make no row ({counted}); allowed are {percent_max:g} %",
        hint=f"see {where}; mend the producer or the options and abandon the plan, or allow more and run again",
    )


def claim_table(output: ObjectStore, topic: str, job: str) -> None:
    """Make this job the one that writes a table. Two jobs would write every row twice."""
    key = names.owner_key(topic)
    try:
        output.put(key, msgspec.json.encode({"job": job}), if_absent=True)
    except ObjectExists as error:
        owner = msgspec.json.decode(output.get(key), type=dict[str, str])["job"]
        if owner != job:
            hint = f"go on with --job {owner}, or write to another --output"
            raise IngestRefused(f"table {topic} in {output.url} belongs to job {owner}", hint=hint) from error


def abandon(output: ObjectStore, job: str, now_ms: int) -> tuple[Plan, list[str]] | None:
    """Give up the plan that is not committed; the plan and the files removed. None if there is no such plan."""
    history = History(output, job)
    head = history.head()
    plan = history.plan(head.number + 1 if head else 1)
    if plan is None:
        return None
    if not history.put_commit(abandonment_of(plan, head, now_ms)).is_abandoned:
        raise IngestRefused(f"plan {plan.number} of job {job} was committed meanwhile", hint="nothing was abandoned")
    return plan, remove_files(output, plan)


def remove_files(output: ObjectStore, plan: Plan) -> list[str]:
    """Remove what an abandoned plan wrote. Names carry the plan's number, so no other plan's file can be met."""
    prefixes = [prefix(topic) for topic in plan.schemas for prefix in (names.table_prefix, names.dead_letters_prefix)]
    keys = [one.key for prefix in prefixes for one in output.list(prefix)]
    mine = [key for key in keys if names.plan_number_of(key) == plan.number]
    for key in mine:
        output.delete(key)
    return mine


def _put_if_absent(output: ObjectStore, key: str, data: bytes) -> None:
    """For objects that are named after their content."""
    try:
        output.put(key, data, if_absent=True)
    except ObjectExists:
        return
