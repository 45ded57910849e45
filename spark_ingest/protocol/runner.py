"""One run of a job: plan, execute, commit, until all records present at its start are ingested. Independent of Spark.

    1 Read the newest commit for the positions. If the next plan is already stored, resume it.
    2 Otherwise make the next plan and store it, create-if-absent. If another driver stored one first, use that.
    3 Execute the tasks. Create each file if it is absent; the plan fixes its name.
    4 Store the commit, create-if-absent. Rows count from this moment.

After a kill:
    before 2 nothing is left; between 2 and 4 the next run resumes the plan and writes the same files;
    after 4 the next run starts at the new positions.
Two concurrent drivers use the same plan and write the same files; one of their commits is stored.
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
from spark_ingest.plan import GENERATION, Plan, Recipe, TaskSpec, task_specs
from spark_ingest.protocol.commit import Commit, abandonment_of, commit_of
from spark_ingest.protocol.history import History
from spark_ingest.protocol.planner import Selection, next_plan
from spark_ingest.protocol.task import TaskResult

Execute = Callable[[Sequence[TaskSpec]], list[TaskResult]]


class RunListener(Protocol):
    """Is notified of plans and commits."""

    def on_plan(self, plan: Plan, *, is_resumed: bool) -> None: ...
    def on_commit(self, commit: Commit, *, is_ours: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its options. `bad_percent_max` is not part of plans: it may differ between attempts."""

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
    listener: RunListener
    new_id: Callable[[], str]
    now_ms: Callable[[], int]


def run(job: Job, parts: Components) -> None:
    """Run the job for all records that the store has at the start. Raises the errors of errors.py."""
    history = History(parts.output, job.name)
    while True:
        head = history.head()
        found = history.plan(head.number + 1 if head else 1)
        plan = found or _new_plan(job, parts, history, head)
        if plan is None:
            return
        check_generation(plan)
        parts.listener.on_plan(plan, is_resumed=found is not None)
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
    results = parts.execute(task_specs(plan)) if plan.tasks else []
    assert sorted(result.task for result in results) == [task.task for task in plan.tasks]
    check_bad_records(results, job.bad_percent_max)
    ours = commit_of(plan, head, results, parts.now_ms())
    stored = history.put_commit(ours)
    assert stored.plan_nonce == plan.nonce
    if stored.is_abandoned:
        raise IngestRefused(f"plan {plan.number} of job {plan.job} was abandoned by another run", hint="run again")
    parts.listener.on_commit(stored, is_ours=stored is ours)


def check_generation(plan: Plan) -> None:
    """Raises IngestRefused if this release would write different files for the plan."""
    if plan.generation != GENERATION:
        raise IngestRefused(
            f"plan {plan.number} of job {plan.job} is of generation {plan.generation}, this release has {GENERATION}",
            hint="finish it with the release that made it, or abandon it",
        )


def check_bad_records(results: Sequence[TaskResult], percent_max: float) -> None:
    """Raises TooManyBadRecords before the commit, so that a wrong option or a faulty producer is noticed."""
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
        f"{bad} of {total} records are dead letters ({counted}); the limit is {percent_max:g} %",
        hint=f"see {where}; correct the producer or the options and abandon the plan, or raise the limit and run again",
    )


def claim_table(output: ObjectStore, topic: str, job: str) -> None:
    """Record this job as the owner of a table. Two jobs would write every row twice. Raises IngestRefused."""
    key = names.owner_key(topic)
    try:
        output.put(key, msgspec.json.encode({"job": job}), if_absent=True)
    except ObjectExists as error:
        owner = msgspec.json.decode(output.get(key), type=dict[str, str])["job"]
        if owner != job:
            hint = f"use --job {owner} or another --output"
            raise IngestRefused(f"table {topic} in {output.url} belongs to job {owner}", hint=hint) from error


def abandon(output: ObjectStore, job: str, now_ms: int) -> tuple[Plan, list[str]] | None:
    """Abandon the uncommitted plan; returns it and the removed files, None if there is none. Raises IngestRefused."""
    history = History(output, job)
    head = history.head()
    plan = history.plan(head.number + 1 if head else 1)
    if plan is None:
        return None
    if not history.put_commit(abandonment_of(plan, head, now_ms)).is_abandoned:
        raise IngestRefused(
            f"plan {plan.number} of job {job} was committed by another run", hint="nothing was abandoned"
        )
    return plan, remove_files(output, plan)


def remove_files(output: ObjectStore, plan: Plan) -> list[str]:
    """Removes the files of an abandoned plan, by the plan number in their names; returns their keys."""
    prefixes = [prefix(topic) for topic in plan.schemas for prefix in (names.table_prefix, names.dead_letters_prefix)]
    keys = [one.key for prefix in prefixes for one in output.list(prefix)]
    mine = [key for key in keys if names.plan_number_of(key) == plan.number]
    for key in mine:
        output.delete(key)
    return mine


def _put_if_absent(output: ObjectStore, key: str, data: bytes) -> None:
    """Creates an object whose name is derived from its content."""
    try:
        output.put(key, data, if_absent=True)
    except ObjectExists:
        return
