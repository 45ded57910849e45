"""What one run is going to do, down to the last offset: the intent that is stored before anything else is written.

Values and their JSON only. A plan carries the resolved options and schemas, so that whoever resumes it, whenever and
with whatever options, makes the same files. What decides whether a result may be committed (the share of bad records)
is not part of it: that may differ from one attempt to the next.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engine.errors import EngineError
from spark_ingest.source.cut import Range, Slice, ranges_of

FORMAT = 1
GENERATION = 1  # of the code that turns records into files; raise it when the same plan would give other rows

RECORD, DEAD_LETTER, FAIL = "record", "dead-letter", "fail"
EVENT_TIME_FALLBACKS = (RECORD, DEAD_LETTER, FAIL)
JSON, RAW = "json", "raw"
PAYLOADS = (JSON, RAW)
RETENTION, TOPIC_DELETED = "retention", "topic_deleted"  # why records are lost


class UnreadablePlan(EngineError):
    """A plan or commit is of a newer format, or damaged. Upgrade, or restore it; nothing was done."""

    code = "unreadable_plan"


class Recipe(msgspec.Struct, frozen=True):
    """How records become rows. The same for all topics of a plan."""

    payload: str = JSON
    event_time: str | None = None
    event_time_fallback: str = RECORD


class TableSchema(msgspec.Struct, frozen=True):
    """The payload columns of a table, in the types of json_types.py. `schema_id` is a digest of them."""

    schema_id: str
    members: list[list[Any]]


class Task(msgspec.Struct, frozen=True):
    """A run of one topic's records in the order of (partition, offset). Its outcome follows from it and the recipe."""

    task: int
    topic: str
    slices: tuple[Slice, ...]

    @property
    def ranges(self) -> list[Range]:
        return ranges_of(self.slices)

    @property
    def record_range(self) -> int:
        return sum(one.end - one.start for one in self.slices)


class TopicPosition(msgspec.Struct, frozen=True):
    """How far a topic's partitions are ingested: everything below `ends[partition]`."""

    topic_id: str
    ends: dict[int, int]


Positions = dict[str, TopicPosition]


class Lost(msgspec.Struct, frozen=True):
    """Offsets `start` to before `end` of a partition. `end` is None where nobody knows how far the store had it."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int | None
    reason: str

    @property
    def records(self) -> int | None:
        return None if self.end is None else self.end - self.start

    def __str__(self) -> str:
        place = f"{self.topic} partition {self.partition}"
        why = "retention was faster" if self.reason == RETENTION else f"topic {self.topic_id} was deleted"
        if self.end is None:
            return f"{place}: an unknown number of records from offset {self.start} on ({why})"
        return f"{place}: {self.end - self.start:,} records, offsets {self.start} to {self.end - 1} ({why})"


class Plan(msgspec.Struct, frozen=True):
    """Plan `number` of a job; commit `number - 1` is the state that it starts from.

    `nonce` tells two plans of one number apart, of which only one was stored. `positions` are those that the plan's
    own partitions will have reached; `skipped` is what retention took before it could be read and `deleted` what went
    with deleted topics, where the job was told to go on without. `is_partial`: more was there to do.
    """

    job: str
    number: int
    nonce: str
    created_ms: int
    store: str
    cluster: str
    recipe: Recipe
    positions: Positions
    schemas: dict[str, TableSchema]
    tasks: tuple[Task, ...]
    skipped: dict[str, list[Range]] = {}
    deleted: tuple[Lost, ...] = ()
    is_partial: bool = False
    generation: int = GENERATION
    format: int = FORMAT

    @property
    def record_range(self) -> int:
        return sum(task.record_range for task in self.tasks)


class Order(msgspec.Struct, frozen=True):
    """All that a task needs, small enough to be sent to whoever runs it."""

    number: int
    recipe: Recipe
    schema: TableSchema
    task: Task


def orders(plan: Plan) -> list[Order]:
    return [Order(plan.number, plan.recipe, plan.schemas[task.topic], task) for task in plan.tasks]


def positions_after(before: Positions, plan: Plan) -> Positions:
    """Where the partitions are once the plan is committed. A recreated topic starts again; a lost one is forgotten."""
    gone = {(one.topic, one.topic_id) for one in plan.deleted}
    after = {topic: position for topic, position in before.items() if (topic, position.topic_id) not in gone}
    for topic, position in plan.positions.items():
        known = before.get(topic)
        ends = dict(known.ends) if known and known.topic_id == position.topic_id else {}
        after[topic] = TopicPosition(position.topic_id, ends | position.ends)
    return after


def encode(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def decode_plan(data: bytes, key: str) -> Plan:
    demand_format(data, key)
    try:
        return msgspec.json.decode(data, type=Plan)
    except msgspec.DecodeError as error:
        raise UnreadablePlan(f"{key}: {error}") from error


def demand_format(data: bytes, key: str) -> None:
    """Refuse what a later release wrote before looking at the rest of it."""
    try:
        found = msgspec.json.decode(data, type=_Formatted).format
    except msgspec.DecodeError as error:
        raise UnreadablePlan(f"{key} is no plan or commit: {error}") from error
    if found > FORMAT:
        raise UnreadablePlan(f"{key} has format {found}, this release knows {FORMAT}", hint="use the newer release")


class _Formatted(msgspec.Struct):
    format: int
