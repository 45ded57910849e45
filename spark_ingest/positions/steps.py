"""Carries out steps that are not runs, with the loop of a run: it stores their plans and commits, and resumes them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.plan import MOVE, Plan, Positions, Recipe, TaskSpec
from spark_ingest.positions.moving import Change, changes_to, check_no_repetition, missing_topics, move_plan
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.failures import Limits, Outcome
from spark_ingest.protocol.history import History
from spark_ingest.protocol.planner import Selection
from spark_ingest.protocol.runner import Components, Job, RunListener, run
from spark_ingest.source.discovery import TieredPartition


def components_of(
    source: ObjectStore,
    output: ObjectStore,
    listener: RunListener,
    new_id: Callable[[], str],
    now_ms: Callable[[], int],
) -> Components:
    """Returns the components of a step, which has no tasks."""
    return Components(source, output, _execute_nothing, lambda: 1, listener, new_id, now_ms)


def set_positions(
    job: str,
    selection: Selection,
    partitions: Sequence[TieredPartition],
    positions: Positions,
    parts: Components,
    *,
    may_repeat: bool,
) -> None:
    """Commits the positions. Raises IngestRefused if another plan is not committed, or records would repeat."""
    history = History(parts.output, job)

    def make(head: Commit | None) -> Plan | None:
        changes = changes_to(history, head, partitions, positions)
        if changes and not may_repeat:
            check_no_repetition(changes)
        return move_plan(job, head, selection, parts, changes) if changes else None

    _commit_move(job, selection, parts, history, make)


def drop_topics(job: str, selection: Selection, parts: Components) -> None:
    """Commits that topics were deleted which the store lacks. Raises IngestRefused if another plan is not committed."""

    def make(head: Commit | None) -> Plan | None:
        assert selection.cluster is not None
        lost = missing_topics(parts.source, selection.cluster, head, selection.wants) if head else []
        return move_plan(job, head, selection, parts, [], lost) if lost else None

    _commit_move(job, selection, parts, History(parts.output, job), make)


def _commit_move(
    job: str,
    selection: Selection,
    parts: Components,
    history: History,
    make: Callable[[Commit | None], Plan | None],
) -> None:
    check_pending(history, MOVE)
    plans: list[Plan] = []

    def step(head: Commit | None, _: Container[str]) -> Plan | None:
        if plans and head is not None and _is_committed(history, plans[-1]):
            return None  # another move after it counts
        plan = make(head)
        plans.extend([plan] if plan else [])
        return plan

    run(Job(job, selection, Recipe(), Limits(0, {}), step=step), parts)


def dry_changes(
    output: ObjectStore, job: str, partitions: Sequence[TieredPartition], positions: Positions
) -> list[Change]:
    """Returns what `set_positions` would change, and changes nothing."""
    history = History(output, job)
    return changes_to(history, history.head(), partitions, positions)


def check_pending(history: History, step: str) -> None:
    """Raises IngestRefused for a stored plan that is not of this kind of step: it comes first."""
    head = history.head()
    pending = history.pending(head)
    if pending is not None and pending.step != step:
        raise IngestRefused(
            f"plan {pending.number} of job {history.job} is not committed",
            hint="penstock ingest run finishes it, abandon drops it",
        )


def _is_committed(history: History, plan: Plan) -> bool:
    commit = history.commit(plan.number)
    return commit is not None and commit.plan_nonce == plan.nonce


def _execute_nothing(specs: Sequence[TaskSpec]) -> Sequence[Outcome]:
    raise IngestRefused("another run has planned meanwhile", hint="run penstock ingest run, then try again")
