"""Makes the next plan of a job: the new records of the store as tasks, and the columns of every table.

Reads manifests and a sample; writes nothing. The run stores the plan, and a resumed run changes nothing in it.
An error of one topic leaves out that topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

import msgspec

from engine.errors import EngineError
from engine.tiering.store.store import ObjectStore
from spark_ingest.choices import Choices, TopicChoice
from spark_ingest.decode.declared_columns import Declared
from spark_ingest.errors import IngestRefused, LostRecords
from spark_ingest.plan import (
    Lost,
    MixedColumn,
    Plan,
    Positions,
    Recipe,
    TableSchema,
    Task,
    TopicPosition,
    arrow_of,
    positions_from,
)
from spark_ingest.progress import Progress
from spark_ingest.protocol.commit import Commit, no_progress
from spark_ingest.protocol.lost import changed_ids, counted, living_ids, lost_to_retention
from spark_ingest.protocol.sample import table_schema
from spark_ingest.source.discovery import (
    Folded,
    TieredPartition,
    load_folded,
    partitions_of,
    slices_between,
    slices_of,
    topics_of,
    unread_entries,
)
from spark_ingest.source.known import KnownManifest, KnownTopics
from spark_ingest.source.listing import Place
from spark_ingest.source.requests import request_all, value_of
from spark_ingest.source.slices import RECORDS_MAX, Range, Slice, bounded, target_group_bytes
from spark_ingest.source.stripes import cut_across
from spark_ingest.types.json_types import ANY_NAMES, NameRules

EARLIEST, LATEST, AGED = "earliest", "latest", "aged"
FAIL_ON_LOSS, SKIP_LOST = "fail", "skip"
TASK_BYTES = 128 << 20  # of log; a task holds its rows in memory and writes one file for each hour
TASK_BYTES_LEAST = 64 << 20  # below this a second task saves a second and doubles the number of files
LOG_BYTES_OF_FILE_BYTE = 8  # JSON without compression, as Parquet; a task of more files has more than one
FILE_RECORDS_MAX = 1 << 32
_RANGES_SHOWN = 5  # in an error; `status` names all
PLAN_BYTES_MAX = 16 << 30  # of log in one commit: about an hour on two cores, repeated after a kill


@dataclass(frozen=True, slots=True)
class Selection:
    """The records that a job reads, and the sizes of its tasks and commits."""

    topics: re.Pattern[str]
    exclude: re.Pattern[str] | None = None
    cluster: str | None = None
    start: str = EARLIEST  # for topics whose name the job does not know; a new partition of the others is at 0
    start_age_ms: int | None = None  # the same, with `start` AGED: segments whose records are all older are left out
    span_ms: int | None = None  # of timestamps that a plan takes of each partition, in whole segments
    on_lost: str = FAIL_ON_LOSS
    task_bytes: int = TASK_BYTES
    plan_bytes_max: int = PLAN_BYTES_MAX
    plan_records_max: int | None = None
    allow_no_topics: bool = False
    widens: bool = False  # a bigint column with fractions becomes a decimal
    declared: Declared = field(default_factory=dict)
    names: NameRules = ANY_NAMES  # of the published tables
    choices: Choices | None = None  # of single topics; they replace the recipe, `widens` and `declared`

    def wants(self, topic: str) -> bool:
        return bool(self.topics.fullmatch(topic)) and not (self.exclude and self.exclude.fullmatch(topic))

    def choice_of(self, topic: str, recipe: Recipe) -> TopicChoice:
        """Returns the choice for a topic; `recipe` is that of topics without one."""
        if self.choices is not None:
            return self.choices(topic)
        return TopicChoice(recipe, self.declared.get(topic, {}), widens=self.widens)


@dataclass(frozen=True, slots=True)
class Planned:
    """The next plan, None if nothing is new; and the errors of topics that it therefore leaves out.

    `reading` has the first offset of each partition that the job has not committed, also where nothing is new. `known`
    is for the next plan of the job.
    """

    plan: Plan | None
    failures: dict[str, EngineError]
    cluster: str
    reading: Positions
    known: KnownTopics


@dataclass(frozen=True, slots=True)
class _Todo:
    """A partition's new records; empty if the job starts at its end."""

    partition: TieredPartition
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Changes:
    """The new records of one topic, and the lost ones of a deleted topic of its name."""

    todos: list[_Todo]
    deleted: list[Lost]
    reading: TopicPosition | None  # None if the topic is not in the store
    slices: list[Slice] = field(default_factory=list)
    is_cut: bool = False  # more records remain beyond the span


def next_plan(
    source: ObjectStore,
    cluster: str,
    head: Commit | None,
    job: str,
    selection: Selection,
    recipe: Recipe,
    *,
    left_out: Container[str],
    known_topics: Callable[[str], KnownTopics],
    claim: Callable[[str], None],
    parallelism: int,
    new_id: Callable[[], str],
    now_ms: int,
) -> Planned:
    """Returns the plan after `head`, without the topics in `left_out`. `claim` raises if a table is another job's.

    `cluster` is that of the job, `known_topics` returns what the job remembers of it.

    Raises IngestRefused, and retryable errors; an error of one topic is in the result.
    """
    progress = head.progress if head else no_progress()
    of_job = {*progress.positions, *progress.ended}
    stored_topics = topics_of(source, cluster, selection.wants)
    if not stored_topics and not selection.allow_no_topics and not any(map(selection.wants, of_job)):
        hint = "use --allow-no-topics if the topics do not exist yet"
        raise IngestRefused(f"no topic in {source.url} matches {selection.topics.pattern!r}", hint=hint)
    stored = [topic for topic in stored_topics if topic not in left_out]
    discovered = partitions_of(source, cluster, stored, known_topics(cluster), partial(_is_committed, progress))
    gone: dict[str, list[TieredPartition] | EngineError] = {
        topic: [] for topic in of_job.difference(stored_topics) if selection.wants(topic) and topic not in left_out
    }
    topics = dict(sorted((gone | discovered.topics).items()))
    changes, failures, settled = _all_changes(source, cluster, progress, selection, topics, now_ms)
    reading = {topic: change.reading for topic, change in changes.items() if change.reading}
    groups = _groups(changes, selection, parallelism, partial(_log_bytes_of_file, head, selection, recipe))
    taken = groups[: len(bounded([group for _, group in groups], selection.plan_bytes_max, selection.plan_records_max))]
    tasks = tuple(Task(at, topic, group) for at, (topic, group) in enumerate(taken))
    schemas: dict[str, TableSchema] = {}
    mixed: dict[str, list[MixedColumn]] = {}
    by_topic = {topic: list(some) for topic, some in groupby(tasks, lambda task: task.topic)}

    def claim_columns(topic: str) -> tuple[TableSchema, list[MixedColumn]]:
        claim(topic)
        choice = selection.choice_of(topic, recipe)
        return table_schema(source, head, choice, topic, by_topic[topic], selection.names)

    for topic, schema in zip(by_topic, request_all(claim_columns, list(by_topic)), strict=True):
        if isinstance(schema, EngineError):
            failures[topic] = schema
        else:
            schemas[topic], mixed[topic] = schema
    changes = {
        topic: change for topic, change in changes.items() if topic not in failures and (change.todos or change.deleted)
    }
    if not changes:
        return Planned(None, failures, cluster, reading, discovered.known)
    planned = [task for task in tasks if task.topic in changes]
    tasks = tuple(msgspec.structs.replace(task, task=at) for at, task in enumerate(planned))
    todos = [todo for change in changes.values() for todo in change.todos]
    recipes = _recipes(selection, recipe, by_topic.keys() & changes)
    positions = _positions(todos, tasks)
    plan = Plan(
        job=job,
        number=head.number + 1 if head else 1,
        nonce=new_id(),
        created_ms=now_ms,
        store=source.url,
        cluster=cluster,
        recipe=recipe,
        positions=positions,
        schemas=schemas,
        tasks=tasks,
        skipped=_skipped(todos, progress),
        deleted=tuple(lost for change in changes.values() for lost in change.deleted),
        unseen=_unseen(todos, progress, selection),
        settled={topic: ids for topic, ids in settled.items() if topic in positions or progress.knows(topic)},
        is_partial=len(taken) < len(groups) or any(change.is_cut for change in changes.values()),
        recipes=recipes,
        arrow=arrow_of((recipe, *recipes.values())),
        mixed={topic: mixed[topic] for topic in sorted(by_topic.keys() & changes) if mixed[topic]},
    )
    return Planned(plan, failures, cluster, reading, discovered.known)


@contextmanager
def _failing_alone(topic: str, failures: dict[str, EngineError]) -> Iterator[None]:
    """Adds an error to the failures of its topic, except one that a retry may cure."""
    try:
        yield
    except EngineError as error:
        if error.retryable:
            raise
        failures[topic] = error


def _all_changes(
    source: ObjectStore,
    cluster: str,
    progress: Progress,
    selection: Selection,
    topics: Mapping[str, list[TieredPartition] | EngineError],
    now_ms: int,
) -> tuple[dict[str, _Changes], dict[str, EngineError], dict[str, list[str]]]:
    """Returns the changes of each topic, the errors of the others, and what the plan has as settled."""
    failures = {topic: result for topic, result in topics.items() if isinstance(result, EngineError)}
    stored = {topic: result for topic, result in topics.items() if not isinstance(result, EngineError)}
    living = living_ids(partition for partitions in stored.values() for partition in partitions)
    changed = changed_ids(source, cluster, living, progress, stored.__contains__)
    changes: dict[str, _Changes] = {}
    for topic, partitions in stored.items():
        with _failing_alone(topic, failures):
            changes[topic] = _changes(progress, selection, partitions, value_of(changed.lost.get(topic, [])))
    todos = [todo for change in changes.values() for todo in change.todos]
    folded = load_folded(source, [(todo.partition, todo.start, todo.end) for todo in todos])
    complete: dict[str, _Changes] = {}
    for topic, topic_change in changes.items():
        with _failing_alone(topic, failures):
            within = [_bounded_in_time(todo, progress, selection, folded, now_ms) for todo in topic_change.todos]
            slices = [piece for todo in within for piece in slices_of(todo.partition, todo.start, todo.end, folded)]
            is_cut = any(todo.end < before.end for todo, before in zip(within, topic_change.todos, strict=True))
            complete[topic] = replace(topic_change, todos=within, slices=slices, is_cut=is_cut)
    return complete, failures, changed.settled


def _bounded_in_time(todo: _Todo, progress: Progress, selection: Selection, folded: Folded, now_ms: int) -> _Todo:
    """Returns the records that a job takes by their timestamps: not older than a new job wants, within the span."""
    partition, start, end = todo.partition, todo.start, todo.end
    if selection.start_age_ms is not None and _committed(partition, progress) is None:
        recent = slices_between(partition, start, end, folded, now_ms - selection.start_age_ms, None)
        start = next((entry.start for entry in recent), end)
    if selection.span_ms is not None and start < end:
        first, *others = unread_entries(partition, start, folded)
        until_ms = first.min_timestamp_ms + selection.span_ms
        end = next((entry.base_offset for entry in others if entry.min_timestamp_ms > until_ms), end)
    return _Todo(partition, start, end)


def _changes(
    progress: Progress, selection: Selection, partitions: Sequence[TieredPartition], deleted: list[Lost]
) -> _Changes:
    """Returns the changes of a topic, still without its slices. Raises LostRecords."""
    if selection.on_lost == FAIL_ON_LOSS:
        check_no_loss([*lost_to_retention(partitions, progress), *deleted])
    todos = [_todo(partition, progress, selection) for partition in partitions]
    reading = {todo.partition.partition: todo.start for todo in todos}
    todos = [todo for todo in todos if todo.start != _committed(todo.partition, progress) or todo.start < todo.end]
    return _Changes(todos, deleted, TopicPosition(partitions[0].topic_id, reading) if partitions else None)


def check_no_loss(lost: Sequence[Lost]) -> None:
    """Raises LostRecords with the first ranges and the number of all records."""
    if lost:
        more = f"; and {len(lost) - _RANGES_SHOWN} more ranges" if len(lost) > _RANGES_SHOWN else ""
        raise LostRecords(
            f"{counted(lost):,} records or more were not ingested and are no longer in the store: "
            + "; ".join(map(str, lost[:_RANGES_SHOWN]))
            + more,
            hint="--on-lost skip continues and records the loss in the commit",
        )


def _committed(partition: TieredPartition, progress: Progress) -> int | None:
    return progress.reached(partition.topic, partition.topic_id, partition.partition)


def _is_committed(progress: Progress, partition_key: Place, manifest: KnownManifest) -> bool:
    """True if the job has committed all that a manifest has."""
    return progress.reached(*partition_key) == manifest.end_offset


def _todo(partition: TieredPartition, progress: Progress, selection: Selection) -> _Todo:
    start, end = _committed(partition, progress), partition.tiered_end
    if start is None:
        return _Todo(partition, end if selection.start == LATEST else partition.log_start, end)
    title = f"{partition.topic} partition {partition.partition}"
    if start > end:
        raise LostRecords(
            f"{title} is ingested up to {start}, but the store ends at {end}", hint="the store may be an older copy"
        )
    return _Todo(partition, max(start, partition.log_start), end)


def _groups(
    changes: Mapping[str, _Changes], selection: Selection, parallelism: int, file_log_bytes: Callable[[str], int]
) -> list[tuple[str, tuple[Slice, ...]]]:
    """Groups the slices of each topic into tasks: equal ones, or of `file_log_bytes`, which is 0 without a target.

    A task with a target writes its rows in parts, so the number of its records is not bounded.
    """
    totals = {topic: sum(piece.weight_bytes for piece in change.slices) for topic, change in changes.items()}
    group_bytes = {topic: min(file_log_bytes(topic), selection.plan_bytes_max) for topic in changes}
    total = sum(size_bytes for topic, size_bytes in totals.items() if not group_bytes[topic])
    task_bytes = min(selection.task_bytes, selection.plan_bytes_max)
    shared = target_group_bytes(total, task_bytes, TASK_BYTES_LEAST, parallelism)
    records_max = selection.plan_records_max or FILE_RECORDS_MAX
    groups: list[tuple[str, tuple[Slice, ...]]] = []
    for topic, change in changes.items():
        target, most = shared, min(RECORDS_MAX, records_max)
        if group_bytes[topic]:
            target, most = -(-totals[topic] // max(1, round(totals[topic] / group_bytes[topic]))) or 1, records_max
        groups += [(topic, group) for group in cut_across(change.slices, target, most)]
    return groups


def _log_bytes_of_file(head: Commit | None, selection: Selection, recipe: Recipe, topic: str) -> int:
    """Returns how much of the log a file of the topic's size takes, by the newest commit; 0 without a size."""
    file_bytes = selection.choice_of(topic, recipe).recipe.layout.file_bytes
    results = [result for result in head.results if result.topic == topic] if head and file_bytes else []
    written = sum(file.size_bytes for result in results for file in result.files)
    if written * 8 < file_bytes or not written:  # too little for an estimate
        return file_bytes * LOG_BYTES_OF_FILE_BYTE
    return file_bytes * sum(result.read_bytes for result in results) // written


def _positions(todos: Sequence[_Todo], tasks: Sequence[Task]) -> Positions:
    """Returns the position of every partition after the tasks of the plan."""
    starts = [(todo.partition.topic, todo.partition.topic_id, todo.partition.partition, todo.start) for todo in todos]
    positions = positions_from(starts)
    for task in tasks:
        for span in task.ranges:
            assert positions[task.topic].ends[span.partition] == span.start
            positions[task.topic].ends[span.partition] = span.end
    return positions


def _skipped(todos: Sequence[_Todo], progress: Progress) -> dict[str, list[Range]]:
    skipped: dict[str, list[Range]] = {}
    for todo in todos:
        reached = _committed(todo.partition, progress)
        if reached is not None and reached < todo.start:
            lost = Range(todo.partition.partition, reached, todo.start)
            skipped.setdefault(todo.partition.topic, []).append(lost)
    return skipped


def _unseen(todos: Sequence[_Todo], progress: Progress, selection: Selection) -> dict[str, list[Range]]:
    """Returns what is missing below the first offset of partitions that the job reads from the start, and did not."""
    unseen: dict[str, list[Range]] = {}
    for todo in todos:
        if selection.start == EARLIEST and todo.start > 0 and _committed(todo.partition, progress) is None:
            unseen.setdefault(todo.partition.topic, []).append(Range(todo.partition.partition, 0, todo.start))
    return unseen


def _recipes(selection: Selection, recipe: Recipe, topics: Iterable[str]) -> dict[str, Recipe]:
    """Returns the recipes of topics that have another one than the plan."""
    recipes = {topic: selection.choice_of(topic, recipe).recipe for topic in sorted(topics)}
    return {topic: own_recipe for topic, own_recipe in recipes.items() if own_recipe != recipe}
