"""One run of a job: plan, execute, commit, until all records present at its start are ingested. Independent of Spark.

    1 Read the newest commit for the positions; refuse a store without its cluster. If the next plan is already stored,
      resume it.
    2 Otherwise make the next plan and store it, create-if-absent. If another driver stored one first, use that.
    3 Execute the tasks. Create each file if it is absent; the plan fixes its name.
    4 Store the commit, create-if-absent. Rows count from this moment.

After a kill:
    before 2 nothing is left; between 2 and 4 the next run resumes the plan and writes the same files;
    after 4 the next run starts at the new positions.
Two concurrent drivers use the same plan and write the same files; one of their commits is stored.

A topic that fails is left out of the commit (`held`), and its data files are removed; the others are committed. If all
topics of a plan fail and no other one has new records, nothing is committed and the next run resumes the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Protocol

from engine.errors import EngineError
from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import ColumnsWidened, IngestRefused, RepeatedRecords
from spark_ingest.layout import Layout
from spark_ingest.output import names
from spark_ingest.output.owners import claim_table
from spark_ingest.output.schema_object import schema_document
from spark_ingest.output.stores import put_if_absent
from spark_ingest.plan import GENERATION, GENERATIONS, Plan, Recipe, TaskSpec, plan_without, starts_of, task_specs
from spark_ingest.protocol.commit import Commit, abandonment_of, commit_of, no_progress
from spark_ingest.protocol.failures import Failures, Limits, Outcome, check_no_failures, failures_of, held_topics
from spark_ingest.protocol.history import History
from spark_ingest.protocol.planner import Planned, Selection, next_plan
from spark_ingest.protocol.registration import Registrar
from spark_ingest.protocol.results import TaskResult
from spark_ingest.run_limits import Budget, RunLimits
from spark_ingest.source.discovery import resolve_cluster
from spark_ingest.source.known import KnownManifests

Execute = Callable[[Sequence[TaskSpec]], Sequence[Outcome]]


# Makes the plans of a step that is not a run, until None; the second argument has the topics that failed.
Step = Callable[["Commit | None", Container[str]], "Plan | None"]


class RunListener(Protocol):
    """Is notified of plans, commits, a failed registration, a limit of the run, and at the end of failed topics."""

    def on_plan(self, plan: Plan, *, is_resumed: bool) -> None: ...
    def on_commit(self, commit: Commit, *, is_ours: bool) -> None: ...
    def on_unregistered(self, why: str) -> None: ...
    def on_limit(self) -> None: ...
    def on_failures(self, failures: Failures) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    selection: Selection
    recipe: Recipe
    limits: Limits
    run_limits: RunLimits = field(default_factory=RunLimits)
    is_registered: bool = True  # in the source store, for topics whose retention waits for jobs
    step: Step | None = None


@dataclass(frozen=True, slots=True)
class Components:
    source: ObjectStore
    output: ObjectStore
    execute: Execute
    parallelism: Callable[[], int]
    listener: RunListener
    new_id: Callable[[], str]
    now_ms: Callable[[], int]


class _Next(Enum):
    """The step after a plan. STOP: every topic failed and no other one has new records; the plan stays uncommitted."""

    STOP = auto()
    GO_ON = auto()
    PLAN_AGAIN = auto()  # with widened columns


def run(job: Job, parts: Components) -> None:
    """Run the job for all records that the store has at the start, up to its limits. Raises the errors of errors.py.

    Topics that fail are left out, and the error of this run comes after the others are committed.
    """
    history = History(parts.output, job.name)
    failures: dict[str, EngineError] = {}
    registrar = Registrar(parts.source, job.name, parts.output.url, parts.listener.on_unregistered)
    budget = job.run_limits.begin(parts.now_ms())
    head = history.head()
    cluster = resolve_cluster(parts.source, job.selection.cluster, head.cluster if head else None)
    if head is None and job.is_registered and history.pending(None) is None:
        registrar.check_output(cluster)
    job = replace(job, selection=replace(job.selection, cluster=cluster))
    _remove_held_files(parts.output, head)
    while True:
        _register(job, registrar, head)
        pending = history.pending(head)
        if pending is None and budget.is_spent(parts.now_ms()):
            parts.listener.on_limit()
            break
        plan = pending or _new_plan(
            replace(job, selection=within(job.selection, budget)), parts, history, head, failures, registrar
        )
        if plan is None:
            break
        check_generation(plan)
        check_not_committed(plan, head)
        budget = budget.after(plan)
        if pending and job.is_registered:
            registrar.update(plan.cluster, head.first_nonce if head else plan.nonce, starts_of(plan))
        parts.listener.on_plan(plan, is_resumed=pending is not None)
        is_again = pending is not None or plan.is_partial or job.step is not None
        if history.commit(plan.number) is None:
            outcome = _carry_out(job, parts, history, head, plan, failures)
            is_again = outcome is _Next.PLAN_AGAIN or (is_again and outcome is _Next.GO_ON)
        if not is_again:
            _register(job, registrar, history.commit(plan.number))
            break
        head = history.head()
    parts.listener.on_failures(failures)
    check_no_failures(failures)


def within(selection: Selection, budget: Budget) -> Selection:
    """Returns the selection with plans no larger than what is left of the run's limits."""
    bytes_max = min(selection.plan_bytes_max, budget.size_bytes or selection.plan_bytes_max)
    return replace(selection, plan_bytes_max=bytes_max, plan_records_max=budget.records, span_ms=budget.span_ms)


def _register(job: Job, registrar: Registrar, commit: Commit | None) -> None:
    if commit is not None and job.is_registered:
        positions = {topic: position for topic, position in commit.positions.items() if job.selection.wants(topic)}
        registrar.update(commit.cluster, commit.first_nonce, positions, commit)


def _new_plan(
    job: Job,
    parts: Components,
    history: History,
    head: Commit | None,
    failures: dict[str, EngineError],
    registrar: Registrar,
) -> Plan | None:
    """Stores the next plan, without the topics that failed in this run; adds those that cannot be planned."""
    if job.step is not None:
        plan = job.step(head, failures)
        return None if plan is None else _store_plan(job, parts, history, plan)
    remembered = _known_manifests(job, parts)
    planned = _next_plan(job, parts, head, failures, remembered)
    failures |= planned.failures
    plan = planned.plan
    if plan is not None:
        check_not_committed(plan, head)
        plan = _store_plan(job, parts, history, plan)
    remembered.store(planned.cluster, planned.known)
    if job.is_registered:
        nonce = head.first_nonce if head else plan.nonce if plan else ""  # without a plan there is nothing to register
        registrar.update(planned.cluster, nonce, planned.reading)
    return plan


def _store_plan(job: Job, parts: Components, history: History, plan: Plan) -> Plan:
    """Stores the columns of tables, then the plan; returns the stored plan."""
    for topic, schema in plan.schemas.items():
        key = names.schema_key(job.name, topic, schema.schema_id)
        recipe = plan.recipe_of(topic)
        put_if_absent(parts.output, key, schema_document(topic, recipe.payload, schema, recipe.layout))
    stored = history.put_plan(plan)
    _check_not_behind(history, plan.number)
    return stored


def _known_manifests(job: Job, parts: Components) -> KnownManifests:
    return KnownManifests(parts.output, names.known_manifests_key(job.name), parts.source.url)


def _check_not_behind(history: History, number: int) -> None:
    """Raises IngestRefused for a plan whose commit was made and cleaned away while this driver was suspended."""
    if history.is_behind(number):
        raise IngestRefused(f"plan {number} of job {history.job} is older than its archives", hint="run again")


def _next_plan(
    job: Job, parts: Components, head: Commit | None, failures: Container[str], remembered: KnownManifests
) -> Planned:
    assert job.selection.cluster is not None, "run has resolved it"
    return next_plan(
        parts.source,
        job.selection.cluster,
        head,
        job.name,
        job.selection,
        job.recipe,
        left_out=failures,
        known_topics=remembered.load,
        claim=lambda topic: claim_table(parts.output, topic, job.name, _layout(job, topic)),
        parallelism=parts.parallelism(),
        new_id=parts.new_id,
        now_ms=parts.now_ms(),
    )


def _carry_out(
    job: Job, parts: Components, history: History, head: Commit | None, plan: Plan, failures: dict[str, EngineError]
) -> _Next:
    """Executes and commits a plan."""
    outcomes = parts.execute(task_specs(plan)) if plan.tasks else []
    failed = failures_of(outcomes, plan.schemas, job.limits)
    widened = {topic for topic, error in failed.items() if isinstance(error, ColumnsWidened)}
    failures |= {topic: error for topic, error in failed.items() if topic not in widened}
    rest = plan_without(plan, failed)
    is_useless = failed and not widened and not rest.positions and not rest.deleted
    if is_useless and (job.step or _next_plan(job, parts, head, failures, _known_manifests(job, parts)).plan is None):
        return _Next.STOP
    results = [outcome for outcome in outcomes if isinstance(outcome, TaskResult)]
    done = sorted(result.task for result in results if result.topic not in failed)
    assert done == [task.task for task in rest.tasks]
    ours = commit_of(plan, head, results, held_topics(plan.number, failed, outcomes), parts.now_ms())
    _check_not_behind(history, plan.number)
    stored = history.put_commit(ours)
    assert stored.plan_nonce == plan.nonce
    if stored.is_abandoned:
        raise IngestRefused(f"plan {plan.number} of job {plan.job} was abandoned by another run", hint="run again")
    remove_files(parts.output, plan.number, [names.table_prefix(topic) for topic in stored.held_here])
    parts.listener.on_commit(stored, is_ours=stored is ours)
    return _Next.PLAN_AGAIN if widened else _Next.GO_ON


def _remove_held_files(output: ObjectStore, head: Commit | None) -> None:
    """Removes the files of topics that earlier plans blocked: the next plan writes others."""
    for topic, held in head.held.items() if head else ():
        remove_files(output, held.plan, [names.table_prefix(topic), names.dead_letters_prefix(topic)])


def check_generation(plan: Plan) -> None:
    """Raises IngestRefused if this release would write different files for the plan."""
    if plan.generation not in GENERATIONS:
        raise IngestRefused(
            f"plan {plan.number} of job {plan.job} is of generation {plan.generation}, this release has {GENERATION}",
            hint="finish it with the release that made it, or abandon it",
        )


def check_not_committed(plan: Plan, head: Commit | None) -> None:
    """Raises RepeatedRecords if a run's plan has offsets that are committed, whatever made it so.

    Steps that are not runs choose their ranges from the whole history, and name the repeated ones.
    """
    progress = head.progress if head else no_progress()
    for task in plan.tasks if not plan.step else ():
        topic_id = plan.positions[task.topic].topic_id
        for span in task.ranges:
            reached = progress.reached(task.topic, topic_id, span.partition)
            if reached is not None and span.start < reached:
                raise RepeatedRecords(
                    f"plan {plan.number} of job {plan.job} has offsets {span.start} to {min(span.end, reached) - 1} of "
                    f"{task.topic} partition {span.partition}, which are committed",
                    hint="penstock ingest abandon drops the plan",
                )


def _layout(job: Job, topic: str) -> Layout:
    return job.selection.choice_of(topic, job.recipe).recipe.layout


def abandon(output: ObjectStore, job: str, now_ms: int) -> tuple[Plan, list[str]] | None:
    """Abandon the uncommitted plan; returns it and the removed files, None if there is none. Raises IngestRefused."""
    history = History(output, job)
    head = history.head()
    plan = history.pending(head)
    if plan is None:
        return None
    if not history.put_commit(abandonment_of(plan, head, now_ms)).is_abandoned:
        raise IngestRefused(
            f"plan {plan.number} of job {job} was committed by another run", hint="nothing was abandoned"
        )
    prefixes = [prefix(topic) for topic in plan.schemas for prefix in (names.table_prefix, names.dead_letters_prefix)]
    return plan, remove_files(output, plan.number, prefixes)


def remove_files(output: ObjectStore, plan: int, prefixes: Sequence[str]) -> list[str]:
    """Removes the files of a plan, by the plan number in their names; returns their keys."""
    keys = [info.key for prefix in prefixes for info in output.list(prefix)]
    mine = [key for key in keys if names.plan_number_of(key) == plan]
    for key in mine:
        output.delete(key)
    return mine
