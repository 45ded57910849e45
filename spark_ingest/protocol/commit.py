"""A commit: positions, schemas and files in one object. A plan counts as done when its commit exists.

Values and their JSON only; history.py stores them. A commit has the positions of all partitions of the job, so the next
run reads only the newest one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from spark_ingest.plan import (
    FORMAT,
    NOT_TIERED,
    PASSED,
    REPLAY,
    TOPIC_DELETED,
    TOPIC_RANGES,
    UNSEEN,
    Ended,
    Lost,
    Plan,
    Positions,
    TableSchema,
    plan_without,
)
from spark_ingest.progress import Progress
from spark_ingest.protocol.failures import Held
from spark_ingest.protocol.lost import counted, lost_of
from spark_ingest.protocol.results import SEEN_MEMBERS_MAX, TaskResult, TimeCounts, add_times
from spark_ingest.source.range_sets import without
from spark_ingest.source.slices import Range
from spark_ingest.types.json_types import Members, merge_members

_BY_DELETION = (TOPIC_DELETED, NOT_TIERED)
# A commit takes over these fields of the one before, unless its plan changes them.
_CARRIED = (
    *("positions", "schemas", "seen", "lost_records", "held", "misfits", "first_nonce", "unseen_records"),
    *("recovered_records", "replay", "ended", "knows_ended"),
)


class Commit(msgspec.Struct, frozen=True):
    """Commit `number` of a job. An abandoned commit ends its plan without files; positions do not change.

    `seen` are types of members without a column; the next plan may add columns. `skipped` and `deleted` as in the plan.
    `lost_records` counts known lost records in all commits including this one; older releases wrote 0. `held` are
    topics whose last plan failed: their positions, columns and results are those of the commit before. `misfits`
    counts, by topic and column, values of another type than their column, in all commits including this one.
    `unseen` as in the plan; `unseen_records` counts them by topic, in all commits including this one. `first_nonce` is
    that of the job's first plan; older releases did not write it. `step` and the ranges by topic as in the plan;
    `recovered_records` counts the recovered ones in all commits including this one. `replay` is the number of the
    newest commit that is a replay. `audit` counts this commit's records by topic and ten minutes. `ended` has earlier
    ids of topics, as in Progress; `knows_ended` is False if a release made the commit that did not look for them.
    """

    job: str
    number: int
    plan_nonce: str
    committed_ms: int
    cluster: str
    positions: Positions
    schemas: dict[str, TableSchema]
    seen: dict[str, Members]
    results: tuple[TaskResult, ...]
    skipped: dict[str, list[Range]] = {}
    deleted: tuple[Lost, ...] = ()
    lost_records: int = 0
    held: dict[str, Held] = {}
    misfits: dict[str, dict[str, int]] = {}
    first_nonce: str = ""
    unseen: dict[str, list[Range]] = {}
    unseen_records: dict[str, int] = {}
    step: str = ""
    passed: dict[str, list[Range]] = {}
    reopened: dict[str, list[Range]] = {}
    repeated: dict[str, list[Range]] = {}
    recovered: dict[str, list[Range]] = {}
    recovered_records: int = 0
    replay: int = 0
    audit: dict[str, TimeCounts] = {}
    ended: Ended = {}
    knows_ended: bool = False
    is_abandoned: bool = False
    format: int = FORMAT

    @property
    def progress(self) -> Progress:
        return Progress(self.positions, self.ended, self.knows_ended)

    @property
    def lost(self) -> list[Lost]:
        """Returns the ranges that this commit recorded as lost: by retention, by deletion, and by a move past them."""
        return [*_lost(self.skipped, self.passed, self.positions), *self.deleted]

    @property
    def unseen_ranges(self) -> list[Lost]:
        """Returns the ranges that were gone when this commit's plan first read their partitions."""
        return lost_of(self.unseen, self.positions, UNSEEN)

    @property
    def held_here(self) -> list[str]:
        """Returns the topics of this commit's own plan that it holds back."""
        return [topic for topic, held in self.held.items() if held.plan == self.number]

    @property
    def held_details(self) -> dict[str, str]:
        """Returns the error of each held topic."""
        return {topic: held.detail for topic, held in self.held.items()}

    @property
    def rows(self) -> int:
        return sum(result.rows for result in self.results)

    @property
    def bad(self) -> int:
        return sum(result.bad for result in self.results)


def commit_of(
    plan: Plan, before: Commit | None, results: Sequence[TaskResult], held: dict[str, Held], now_ms: int
) -> Commit:
    """Returns the commit of a plan without the held topics; of their results, it keeps what members they have seen."""
    plan = plan_without(plan, held)
    seen = dict(before.seen) if before else {}
    for topic in plan.schemas:
        seen[topic] = []
    for result in results:
        seen[result.topic] = merge_members(seen.get(result.topic, []), result.seen)[:SEEN_MEMBERS_MAX]
    done = [result for result in results if result.topic not in held]
    lost = [*_lost(plan.skipped, plan.passed, plan.positions), *plan.deleted]
    ended = _end_plan(plan, before, now_ms)
    progress = ended.progress.advanced(plan.positions, plan.deleted, plan.settled)
    return msgspec.structs.replace(
        ended,
        positions=progress.positions,
        ended=progress.ended,
        knows_ended=ended.knows_ended or plan.settled is not None,
        schemas=ended.schemas | plan.schemas,
        seen={topic: members for topic, members in seen.items() if members},
        results=tuple(
            msgspec.structs.replace(result, seen=[], times=None)
            for result in sorted(done, key=lambda result: result.task)
        ),
        **{name: getattr(plan, name) for name in TOPIC_RANGES},
        step=plan.step,
        replay=plan.number if plan.step == REPLAY else ended.replay,
        recovered_records=ended.recovered_records + sum(_lengths(plan.recovered).values()),
        deleted=plan.deleted,
        lost_records=ended.lost_records + counted(lost),
        held={topic: held_topic for topic, held_topic in ended.held.items() if topic not in plan.positions} | held,
        misfits=_add_misfits(ended.misfits, done),
        audit=_audit(done),
        unseen_records=dict(Counter(ended.unseen_records) + Counter(_lengths(plan.unseen))),
    )


def abandonment_of(plan: Plan, before: Commit | None, now_ms: int) -> Commit:
    """Returns a commit without results. Once it is stored, the plan can never be committed."""
    return msgspec.structs.replace(_end_plan(plan, before, now_ms), is_abandoned=True)


def _end_plan(plan: Plan, before: Commit | None, now_ms: int) -> Commit:
    """Returns the commit that ends a plan, with the positions, schemas and counts of the commit before."""
    carried = {name: getattr(before, name) for name in _CARRIED} if before else {"first_nonce": plan.nonce}
    empty = Commit(plan.job, plan.number, plan.nonce, now_ms, plan.cluster, {}, {}, {}, ())
    return msgspec.structs.replace(empty, **carried)


def _lost(skipped: dict[str, list[Range]], passed: dict[str, list[Range]], positions: Positions) -> list[Lost]:
    return [*lost_of(skipped, positions), *lost_of(passed, positions, PASSED)]


def _lengths(ranges: dict[str, list[Range]]) -> dict[str, int]:
    return {topic: sum(span.end - span.start for span in spans) for topic, spans in ranges.items()}


def _audit(results: Sequence[TaskResult]) -> dict[str, TimeCounts]:
    """Returns the sums of topics; without topics that a worker of an earlier release did not count."""
    sums: dict[str, TimeCounts | None] = {}
    for result in results:
        sums[result.topic] = add_times(sums.get(result.topic, TimeCounts(batches={})), result.times)
    return {topic: total for topic, total in sums.items() if total is not None}


def _add_misfits(before: dict[str, dict[str, int]], results: Sequence[TaskResult]) -> dict[str, dict[str, int]]:
    counts = {topic: Counter(columns) for topic, columns in before.items()}
    for result in results:
        for name, misfit in result.misfits.items():
            counts.setdefault(result.topic, Counter())[name] += misfit.count
    return {topic: dict(columns) for topic, columns in counts.items()}


def no_progress() -> Progress:
    """Returns that of a job without a commit."""
    return Progress({}, {})


def ended_by(commits: Iterable[Commit]) -> Ended:
    """Returns the last ends of every id that commits have a position of."""
    ended: Ended = {}
    for commit in commits:
        for topic, position in commit.positions.items():
            ends = ended.setdefault(topic, {}).setdefault(position.topic_id, {})
            ended[topic][position.topic_id] = {**ends, **position.ends}
    return ended


def not_recovered(commits: Iterable[Commit]) -> list[Lost]:
    """Returns the ranges that commits recorded as lost, without those that later commits recovered.

    A deleted topic that comes back was not deleted: its later positions say what is lost.
    """
    rest: list[Lost] = []
    for commit in commits:
        living = {(topic, position.topic_id) for topic, position in commit.positions.items()}
        rest = [loss for loss in rest if loss.reason not in _BY_DELETION or (loss.topic, loss.topic_id) not in living]
        for topic, ranges in commit.recovered.items():
            topic_id = commit.positions[topic].topic_id
            rest = [piece for loss in rest for piece in _less(loss, topic, topic_id, ranges)]
        rest += commit.lost
    return rest


def _less(lost: Lost, topic: str, topic_id: str, ranges: Sequence[Range]) -> list[Lost]:
    if (lost.topic, lost.topic_id) != (topic, topic_id) or lost.end is None:
        return [lost]
    whole = Range(lost.partition, lost.start, lost.end)
    return [msgspec.structs.replace(lost, start=span.start, end=span.end) for span in without([whole], ranges)]
