"""Plans of ranges below the positions of a job: those that it has not ingested (backfill), or has (replay).

Positions do not change. A plan is committed like that of a run, and a killed one is resumed by the next run or step.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import IngestRefused
from spark_ingest.output.owners import claim_table
from spark_ingest.plan import (
    BACKFILL,
    MOVE,
    REPLAY,
    Plan,
    Positions,
    Recipe,
    TableSchema,
    Task,
    TopicPosition,
    arrow_of,
)
from spark_ingest.positions.ingested import Ingested, TopicId, ingested_by
from spark_ingest.positions.steps import check_pending
from spark_ingest.protocol.commit import Commit
from spark_ingest.protocol.failures import Limits
from spark_ingest.protocol.history import History
from spark_ingest.protocol.planner import TASK_BYTES_LEAST, Selection
from spark_ingest.protocol.runner import Components, Job, run
from spark_ingest.protocol.sample import table_schema
from spark_ingest.source.discovery import TieredPartition, discover, load_folded, slices_of
from spark_ingest.source.range_sets import common, union, without
from spark_ingest.source.slices import RECORDS_MAX, Range, Slice, bounded, cut, target_group_bytes

Chosen = Mapping[TopicId, Sequence[Range]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets to ingest: from `starts` to before `ends` of each partition. None: all."""

    starts: Positions | None = None
    ends: Positions | None = None
    partitions: frozenset[int] = frozenset()  # empty: all

    def range_of(self, partition: TieredPartition, reached: int) -> Range:
        """Returns the range of a partition within the store and below the position of the job."""
        start = (
            self.starts[partition.topic].ends.get(partition.partition, 0)
            if self.starts and partition.topic in self.starts
            else 0
        )
        end = (
            self.ends[partition.topic].ends.get(partition.partition, 0)
            if self.ends and partition.topic in self.ends
            else reached
        )
        return Range(partition.partition, max(start, partition.log_start), min(end, partition.tiered_end, reached))


def chosen_ranges(
    source: ObjectStore, head: Commit, is_wanted: Callable[[str], bool], bounds: Bounds, ingested: Ingested, step: str
) -> dict[TopicId, list[Range]]:
    """Returns the ranges of a backfill or a replay. Topics without any are absent."""
    asked: dict[TopicId, list[Range]] = {}
    for partition in discover(source, head.cluster, lambda topic: topic in head.positions and is_wanted(topic)):
        position = head.positions[partition.topic]
        if position.topic_id != partition.topic_id or (
            bounds.partitions and partition.partition not in bounds.partitions
        ):
            continue
        span = bounds.range_of(partition, position.ends.get(partition.partition, 0))
        asked.setdefault((partition.topic, partition.topic_id), []).append(span)
    chosen = common if step == REPLAY else without
    spans_chosen = {
        topic_partition: chosen(ranges, ingested.ranges.get(topic_partition, []))
        for topic_partition, ranges in asked.items()
    }
    return {topic_partition: ranges for topic_partition, ranges in spans_chosen.items() if ranges}


def recipes_of(history: History, head: Commit, topics: Container[str]) -> dict[str, Recipe]:
    """Returns the recipe of each topic in its newest plan that is not archived."""
    recipes: dict[str, Recipe] = {}
    for number in range(head.number, history.archived_end(), -1):
        plan = history.plan(number)
        for topic in plan.schemas if plan is not None and plan.step != MOVE else ():
            if plan is not None and topic in topics:
                recipes.setdefault(topic, plan.recipe_of(topic))
    return recipes


def ingest_again(job: str, step: str, selection: Selection, bounds: Bounds, limits: Limits, parts: Components) -> None:
    """Commits a backfill or a replay of the bounds, in one plan or several.

    A backfill ingests what no commit has, so a repetition has nothing to do. A replay ingests again what earlier
    commits have; replayed.py then drops the rows of those. Raises IngestRefused, and the errors of a run.
    """
    history = History(parts.output, job)
    check_pending(history, step)
    first = history.head()
    if first is None:
        raise IngestRefused(f"job {job} in {parts.output.url} has no commit", hint="run penstock ingest run first")
    since = first.number

    def make(head: Commit | None, failed: Container[str]) -> Plan | None:
        assert head is not None
        commits = list(history.commits())
        before = [commit for commit in commits if commit.step != REPLAY or commit.number <= since]
        ingested = ingested_by(before if step == REPLAY else commits)
        ranges = chosen_ranges(parts.source, head, selection.wants, bounds, ingested, step)
        if step == REPLAY:
            done = ingested_by(commit for commit in commits if commit.step == REPLAY and commit.number > since)
            ranges = {
                topic_partition: without(some, done.ranges.get(topic_partition, []))
                for topic_partition, some in ranges.items()
            }
        ranges = {
            topic_partition: some
            for topic_partition, some in ranges.items()
            if some and topic_partition[0] not in failed
        }
        return _plan(job, step, head, selection, ranges, ingested_by(commits), parts) if ranges else None

    run(Job(job, selection, Recipe(), limits, step=make), parts)


def _plan(
    job: str, step: str, head: Commit, selection: Selection, chosen: Chosen, ingested: Ingested, parts: Components
) -> Plan:
    partitions = {
        (partition.topic, partition.partition): partition
        for partition in discover(parts.source, head.cluster, selection.wants)
    }
    groups: list[tuple[str, tuple[Slice, ...]]] = []
    for (topic, _), ranges in chosen.items():
        for some in _apart(ranges):
            pieces = _slices(parts.source, partitions, topic, some)
            size_bytes = sum(piece.weight_bytes for piece in pieces)
            task_bytes = min(selection.task_bytes, selection.plan_bytes_max)
            target = target_group_bytes(size_bytes, task_bytes, TASK_BYTES_LEAST, parts.parallelism())
            groups += [(topic, group) for group in cut(pieces, target, RECORDS_MAX)]
    groups = groups[: len(bounded([group for _, group in groups], selection.plan_bytes_max))]
    tasks = tuple(Task(at, topic, group) for at, (topic, group) in enumerate(groups))
    topics = sorted({topic for topic, _ in groups})
    ids = {topic: topic_id for topic, topic_id in chosen if topic in topics}
    covered = {topic: union(span for task in tasks if task.topic == topic for span in task.ranges) for topic in topics}
    recovered = {topic: common(covered[topic], ingested.lost_of(topic, ids[topic])) for topic in topics}
    recipes = {topic: selection.choice_of(topic, Recipe()).recipe for topic in topics}
    schemas: dict[str, TableSchema] = {}
    for topic in topics:
        claim_table(parts.output, topic, job, recipes[topic].layout)
        mine = [task for task in tasks if task.topic == topic]
        choice = selection.choice_of(topic, Recipe())
        schemas[topic], _ = table_schema(parts.source, head, choice, topic, mine, selection.names)
    return Plan(
        job=job,
        number=head.number + 1,
        nonce=parts.new_id(),
        created_ms=parts.now_ms(),
        store=parts.source.url,
        cluster=head.cluster,
        recipe=Recipe(),
        positions={topic: TopicPosition(ids[topic], {}) for topic in topics},
        schemas=schemas,
        tasks=tasks,
        recipes={topic: recipe for topic, recipe in recipes.items() if recipe != Recipe()},
        arrow=arrow_of(recipes.values()),
        step=step,
        repeated=covered if step == REPLAY else {},
        recovered={topic: some for topic, some in recovered.items() if some and step == BACKFILL},
    )


def _apart(ranges: Sequence[Range]) -> list[list[Range]]:
    """Returns the ranges in lists with one range of each partition at most: a task has no gaps."""
    lists: list[list[Range]] = []
    counts: dict[int, int] = {}
    for span in ranges:
        at = counts.get(span.partition, 0)
        counts[span.partition] = at + 1
        if at == len(lists):
            lists.append([])
        lists[at].append(span)
    return lists


def _slices(
    source: ObjectStore, partitions: Mapping[tuple[str, int], TieredPartition], topic: str, ranges: Sequence[Range]
) -> list[Slice]:
    spans = [(partitions[topic, span.partition], span.start, span.end) for span in ranges]
    folded = load_folded(source, spans)
    return [piece for partition, start, end in spans for piece in slices_of(partition, start, end, folded)]


def with_choices(selection: Selection, recipes: Mapping[str, Recipe]) -> Selection:
    """Returns the selection with the recipe of each topic; its other choices stay."""
    choices = selection.choices
    assert choices is not None
    return replace(selection, choices=lambda topic: replace(choices(topic), recipe=recipes[topic]))
