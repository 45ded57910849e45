"""The plan of one commit, down to the last offset. A run stores it before it writes any data file.

Values and their JSON only. A plan contains the resolved options and schemas, so a resumed run writes the same files
whatever options it is given. The limit for dead letters is not part of it: it may differ between attempts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from importlib.metadata import version
from typing import Any, TypeVar

import msgspec

from engine.errors import EngineError
from spark_ingest.layout import DEFAULT, Layout
from spark_ingest.source.slices import Range, Slice, ranges_of

FORMAT = 1
GENERATION = 9  # of the conversion code; increment it when the same plan would give different rows or files
GENERATIONS = (1, 2, 3, 4, 5, 6, 7, 8, GENERATION)  # that this release executes; see _spec for those before

RECORD, DEAD_LETTER, FAIL = "record", "dead-letter", "fail"
EVENT_TIME_FALLBACKS = (RECORD, DEAD_LETTER, FAIL)
JSON, RAW = "json", "raw"
# why records are lost; UNSEEN: they were gone when the job first read the partition
RETENTION, TOPIC_DELETED, NOT_TIERED, UNSEEN = "retention", "topic_deleted", "not_tiered", "unseen"
PASSED = "passed"  # the operator moved the position past them
REPEATED = "repeated"  # not lost: the operator moved the position back, so they come twice

# Steps of a recipe on what is beside the value.
DROP_TOMBSTONES, DROP_HEADERS = "drop-tombstones", "drop-headers"

# Steps that are not runs: they move positions, or ingest ranges below them.
MOVE, BACKFILL, REPLAY = "move", "backfill", "replay"


StructT = TypeVar("StructT", bound=msgspec.Struct)


class UnreadablePlan(EngineError):
    """A plan or commit has a newer format or is damaged. Upgrade or restore it; nothing was done."""

    code = "unreadable_plan"


class Recipe(msgspec.Struct, frozen=True):
    """How records of a topic are converted to rows."""

    payload: str = JSON
    event_time: str | None = None
    event_time_fallback: str = RECORD
    decoder: dict[str, Any] = {}  # the options of the payload's decoder, with the content of schema files
    transforms: tuple[dict[str, Any], ...] = ()  # steps of payload/transformers.py
    event_time_formats: tuple[str, ...] = ()  # patterns of strptime
    event_time_unit: str = "auto"  # of numbers: auto, s, ms, us, ns
    event_time_past_max_s: int | None = None  # before the record's timestamp
    event_time_future_max_s: int | None = None  # after it
    layout: Layout = DEFAULT

    def drops(self, what: str) -> bool:
        """Return whether a step leaves out what has no member: DROP_TOMBSTONES, DROP_HEADERS."""
        return any(step["do"] == what for step in self.transforms)


class TableSchema(msgspec.Struct, frozen=True):
    """The payload columns of a table, in the types of json_types.py. `schema_id` is a digest of them."""

    schema_id: str
    members: list[list[Any]]


class Task(msgspec.Struct, frozen=True):
    """Records of one topic in the order of (partition, offset). Task and recipe determine the result."""

    task: int
    topic: str
    slices: tuple[Slice, ...]

    @property
    def ranges(self) -> list[Range]:
        return ranges_of(self.slices)

    @property
    def record_range(self) -> int:
        return sum(piece.end - piece.start for piece in self.slices)


class TopicPosition(msgspec.Struct, frozen=True):
    """How far a topic's partitions are ingested: everything below `ends[partition]`."""

    topic_id: str
    ends: dict[int, int]


Positions = dict[str, TopicPosition]


def positions_from(ends: Iterable[tuple[str, str, int, int]]) -> Positions:
    """Returns the positions of partitions: topic, topic id, partition and end of each."""
    positions: Positions = {}
    for topic, topic_id, partition, end in ends:
        positions.setdefault(topic, TopicPosition(topic_id, {})).ends[partition] = end
    return positions


Ended = dict[str, dict[str, dict[int, int]]]  # the ends of earlier ids of a topic, by name, id and partition


class Lost(msgspec.Struct, frozen=True):
    """Offsets `start` to before `end` of a partition. `end` is None if the end of the lost range is unknown."""

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
        title = f"{self.topic} partition {self.partition}"
        why = {
            RETENTION: "removed by retention",
            TOPIC_DELETED: f"topic {self.topic_id} was deleted",
            NOT_TIERED: f"not in the store yet when topic {self.topic_id} was deleted",
            UNSEEN: "gone before this job first read the partition",
            PASSED: "passed over by offsets set",
            REPEATED: "ingested twice, by offsets set",
        }[self.reason]
        if self.end is None:
            return f"{title}: an unknown number of records from offset {self.start} ({why})"
        return f"{title}: {self.end - self.start:,} records, offsets {self.start} to {self.end - 1} ({why})"


# The fields of plans and commits with ranges of offsets by topic.
TOPIC_RANGES = ("skipped", "unseen", "passed", "reopened", "repeated", "recovered")


class MixedColumn(msgspec.Struct, frozen=True):
    """A new column whose sampled values have several types: its type, and values that are not of the type of most.

    `path` has the names of a member. `offset` is that of a record with such a value, -1 if it is not known.
    """

    path: list[str]
    kind: str
    values: int
    others: int
    other_kinds: list[str]
    partition: int
    offset: int

    def __str__(self) -> str:
        what = {"json": "text, with the JSON of each value"}.get(self.kind, self.kind)
        kinds = " and ".join(sorted({_KINDS_SHOWN.get(kind, kind) for kind in self.other_kinds}))
        example = f", such as partition {self.partition} offset {self.offset}" if self.offset >= 0 else ""
        return f"column {'.'.join(self.path)} is {what}: {self.others:,} of {self.values:,} values are {kinds}{example}"


_KINDS_SHOWN = {
    "bigint": "integers",
    "long": "integers beyond 2^53",
    "double": "fractions",
    "number": "other numbers",
    "decimal": "numbers beyond a double",
    "boolean": "booleans",
    "string": "text",
    "date": "dates",
    "timestamp": "times",
    "binary": "bytes",
    "struct": "objects",
    "array": "arrays",
    "json": "numbers beyond 64 bits, or nested too deeply",
}


class Plan(msgspec.Struct, frozen=True):
    """Plan `number` of a job; commit `number - 1` is the state that it starts from.

    `nonce` distinguishes two plans of one number; only one of them was stored. `positions` are the ends of the plan's
    partitions after the commit. With `--on-lost skip`, `skipped` lists ranges that retention removed and `deleted`
    ranges of deleted topics. `unseen` are ranges below the first offset of partitions that the job reads from
    the start for the first time. `is_partial`: the store has more records than this plan covers. `recipes` has the
    topics whose recipe is not `recipe`. `settled` has ids by topic that were deleted before the job first read the
    topic; None in plans of steps and of releases that did not look for them.

    `step` is empty for a run. A move has no tasks: positions go past the ranges in `passed`, or back to the start of
    those in `reopened`. `repeated` are ingested ranges that come again, `recovered` lost ranges that come after all.
    `arrow` is the release of PyArrow whose bytes decide where files end; empty without a target for their size. `mixed`
    has new columns of several types, by topic.
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
    unseen: dict[str, list[Range]] = {}
    is_partial: bool = False
    recipes: dict[str, Recipe] = {}
    step: str = ""
    passed: dict[str, list[Range]] = {}
    reopened: dict[str, list[Range]] = {}
    repeated: dict[str, list[Range]] = {}
    recovered: dict[str, list[Range]] = {}
    settled: dict[str, list[str]] | None = None
    arrow: str = ""
    mixed: dict[str, list[MixedColumn]] = {}
    generation: int = GENERATION
    format: int = FORMAT

    @property
    def record_range(self) -> int:
        return sum(task.record_range for task in self.tasks)

    def recipe_of(self, topic: str) -> Recipe:
        return self.recipes.get(topic, self.recipe)


class TaskSpec(msgspec.Struct, frozen=True):
    """The input of one task, small enough to send to a Spark worker. Without a topic id, rows have no `_topic_id`.

    `counts_columns`: the columns of rows count where chunks end, not only the bytes of records. `bounds_records`: so do
    the elements of arrays and dead letters, chunks end within batches, and members of too large records go to `_extra`.
    `codes_constants`: texts that all rows share are dictionaries of Arrow, whose bytes count where files of a target
    size end. `rounds`: double columns round numbers that they do not hold.
    """

    number: int
    recipe: Recipe
    schema: TableSchema
    task: Task
    topic_id: str = ""
    dead_letter_topic_id: str = ""
    counts_columns: bool = True
    bounds_records: bool = True
    arrow: str = ""
    codes_constants: bool = True
    rounds: bool = False


def task_specs(plan: Plan) -> list[TaskSpec]:
    return [_spec(plan, task) for task in plan.tasks]


def _spec(plan: Plan, task: Task) -> TaskSpec:
    """Files of generation 1 have no `_topic_id`, dead letters of generations 1 and 2 have none. Chunks of generations
    1 to 4 do not count columns; those of 5 count one value for each column, and end after whole batches. Rows of
    generations 1 to 6 have the text of every constant. Generations 1 to 7 round numbers. Plans of generations 1 to 8
    have no columns of types that only payloads declare.
    """
    topic_id = plan.positions[task.topic].topic_id
    rows_id, dead_letters_id = (topic_id if plan.generation >= first else "" for first in (2, 3))
    recipe, schema = plan.recipe_of(task.topic), plan.schemas[task.topic]
    counts, bounds, codes, is_exact = (plan.generation >= first for first in (5, 6, 7, 8))
    ids, rounds = (rows_id, dead_letters_id), not is_exact
    return TaskSpec(plan.number, recipe, schema, task, *ids, counts, bounds, plan.arrow, codes, rounds)


def arrow_of(recipes: Iterable[Recipe]) -> str:
    """Returns the release of PyArrow that a plan is for; empty if its files end independently of it."""
    return version("pyarrow") if any(recipe.layout.file_bytes for recipe in recipes) else ""


def starts_of(plan: Plan) -> Positions:
    """Returns the first offset that the plan reads of each partition."""
    starts = {topic: dict(position.ends) for topic, position in plan.positions.items()}
    for task in plan.tasks:
        for span in task.ranges:
            starts[task.topic][span.partition] = min(span.start, starts[task.topic].get(span.partition, span.start))
    return {topic: TopicPosition(plan.positions[topic].topic_id, ends) for topic, ends in starts.items()}


def plan_without(plan: Plan, topics: Container[str]) -> Plan:
    """Returns the plan as if it did not have these topics."""
    by_topic = {
        name: {topic: value for topic, value in getattr(plan, name).items() if topic not in topics}
        for name in (*TOPIC_RANGES, "positions", "schemas", "recipes", "mixed")
    }
    return msgspec.structs.replace(
        plan,
        **by_topic,
        tasks=tuple(task for task in plan.tasks if task.topic not in topics),
        deleted=tuple(loss for loss in plan.deleted if loss.topic not in topics),
    )


def encode(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def decode(data: bytes, key: str, kind: type[StructT]) -> StructT:
    """Decodes a stored plan or commit. Raises UnreadablePlan."""
    _check_format(data, key)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise UnreadablePlan(f"{key}: {error}") from error


def _check_format(data: bytes, key: str) -> None:
    """Raises UnreadablePlan for a newer format, before anything else is decoded."""
    try:
        format_name = msgspec.json.decode(data, type=_Formatted).format
    except msgspec.DecodeError as error:
        raise UnreadablePlan(f"{key} is not a plan or commit: {error}") from error
    if format_name > FORMAT:
        raise UnreadablePlan(
            f"{key} has format {format_name}, this release reads {FORMAT}", hint="use the newer release"
        )


class _Formatted(msgspec.Struct):
    format: int
