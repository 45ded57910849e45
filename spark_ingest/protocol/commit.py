"""That a plan was done: positions, schemas and files in one object, which is the only evidence of all three.

Values and their JSON only; history.py stores them. A commit stands by itself: it holds where every partition of the
job is, so the newest one is all that the next run needs.
"""

from __future__ import annotations

import msgspec

from spark_ingest.decode.json_types import Members, merge_members
from spark_ingest.plan import FORMAT, Lost, Plan, Positions, TableSchema, UnreadablePlan, demand_format, positions_after
from spark_ingest.protocol.chapters import SEEN_MEMBERS_MAX
from spark_ingest.protocol.lost import counted, lost_of
from spark_ingest.protocol.task import TaskResult
from spark_ingest.source.cut import Range


class Commit(msgspec.Struct, frozen=True):
    """Commit `number` of a job. An abandoned one gives up its plan: nothing of it counts, positions are as before.

    `seen` are types of members that had no column; the next plan may make some. `skipped` and `deleted` as in the plan.
    `lost_records` counts what is known to be lost in all commits so far, this one included; releases before it wrote 0.
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
    is_abandoned: bool = False
    format: int = FORMAT

    @property
    def lost(self) -> list[Lost]:
        """What this commit gave up, by retention and by deletion."""
        return [*lost_of(self.skipped, self.positions), *self.deleted]

    @property
    def rows(self) -> int:
        return sum(result.rows for result in self.results)

    @property
    def bad(self) -> int:
        return sum(result.bad for result in self.results)


def commit_of(plan: Plan, before: Commit | None, results: list[TaskResult], now_ms: int) -> Commit:
    seen = dict(before.seen) if before else {}
    for topic in plan.schemas:
        seen[topic] = []
    for result in results:
        seen[result.topic] = merge_members(seen[result.topic], result.seen)[:SEEN_MEMBERS_MAX]
    lost = [*lost_of(plan.skipped, plan.positions), *plan.deleted]
    return Commit(
        job=plan.job,
        number=plan.number,
        plan_nonce=plan.nonce,
        committed_ms=now_ms,
        cluster=plan.cluster,
        positions=positions_after(before.positions if before else {}, plan),
        schemas=(before.schemas if before else {}) | plan.schemas,
        seen={topic: members for topic, members in seen.items() if members},
        results=tuple(msgspec.structs.replace(result, seen=[]) for result in sorted(results, key=lambda one: one.task)),
        skipped=plan.skipped,
        deleted=plan.deleted,
        lost_records=(before.lost_records if before else 0) + counted(lost),
    )


def abandonment_of(plan: Plan, before: Commit | None, now_ms: int) -> Commit:
    """A commit in which nothing happened. It makes sure that the plan is never committed."""
    return Commit(
        job=plan.job,
        number=plan.number,
        plan_nonce=plan.nonce,
        committed_ms=now_ms,
        cluster=plan.cluster,
        positions=before.positions if before else {},
        schemas=before.schemas if before else {},
        seen=before.seen if before else {},
        results=(),
        lost_records=before.lost_records if before else 0,
        is_abandoned=True,
    )


def decode_commit(data: bytes, key: str) -> Commit:
    demand_format(data, key)
    try:
        return msgspec.json.decode(data, type=Commit)
    except msgspec.DecodeError as error:
        raise UnreadablePlan(f"{key}: {error}") from error
