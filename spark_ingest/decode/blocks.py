"""Converts blocks of records to Arrow record batches of table rows, and bad records to dead letters. No files.

A record gives a row if its value can be decoded and the recipe finds an event time. docs/ingest.md lists the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ingest.decode.compiled_rows import CompiledRows
from spark_ingest.decode.event_field import EventField
from spark_ingest.decode.event_time import LATEST_US, parse_column
from spark_ingest.decode.json_columns import arrow_fields, extra_array, payload_arrays
from spark_ingest.decode.json_rows import Bad, JsonRows, Rows, leftover_members, misfits
from spark_ingest.decode.record_columns import HEADERS, RecordColumns, headers_array
from spark_ingest.decode.time_rules import beyond_bounds, reader_of
from spark_ingest.decode.value_costs import ValueCosts
from spark_ingest.errors import NoEventTime
from spark_ingest.layout import ORC
from spark_ingest.payload.decoder import Converter, converter_of
from spark_ingest.plan import DROP_HEADERS, FAIL, RAW, RECORD, Recipe, TaskSpec
from spark_ingest.types.declared_types import OfSame, refused
from spark_ingest.types.json_types import Members, columns
from spark_ingest.types.standard_columns import EXTRA, LEADING, TOPIC_ID, VALUE, StandardColumn

TIMESTAMP = pa.timestamp("us", "UTC")
CODED = pa.dictionary(pa.int8(), pa.string())
LATEST_MS = LATEST_US // 1000
ORC_US_MAX = 2**63 // 1000 - 1  # readers of ORC take times as 64-bit nanoseconds: the years 1677 to 2262
_SEEN_MEMBERS_MAX = 1000
_CONSTANTS = ("_topic", "_topic_id", "_schema_id")  # texts that all rows of a task share
_CONVERTED_BYTES = 1 << 20  # of values that are converted together: their JSON may be many times as long
_ARROW_TYPES = {
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": TIMESTAMP,
    "MAP<STRING, BINARY>": HEADERS,
}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record without a row, or a whole undecodable batch, with its raw bytes."""

    partition: int
    offset: int
    last_offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Block:
    """Rows in offset order, dead letters, types of members without a column, rows that use the record's timestamp.

    `misfits` counts values of another type than their column, `filtered` records that a transformer left out.
    """

    rows: pa.RecordBatch
    dead: list[DeadLetter]
    seen: Members
    fallbacks: int
    misfits: dict[str, int]
    filtered: int = 0


@dataclass(slots=True)
class _Payload:
    """Records with a row, the JSON text of their values, their payload columns, and what has no row."""

    records: RecordColumns
    arrays: list[pa.Array]
    texts: Sequence[bytes | None] | None = None  # None: the values themselves
    dead: list[DeadLetter] = field(default_factory=list)
    seen: Members = field(default_factory=list)
    misfits: dict[str, int] = field(default_factory=dict)
    filtered: int = 0


def table_schema(order: TaskSpec) -> pa.Schema:
    """Returns the Arrow schema of rows, which depends on the plan only: all files of a schema id have the same columns.

    Texts that all rows share are dictionaries with one value.
    """
    leading = [arrow_field(column) for column in LEADING if order.topic_id or column != TOPIC_ID]
    if order.codes_constants:
        leading = [field.with_type(CODED) if field.name in _CONSTANTS else field for field in leading]
    if order.recipe.payload == RAW:
        return pa.schema([*leading, arrow_field(VALUE)])
    return pa.schema([*leading, *arrow_fields(order.schema.members), arrow_field(EXTRA)])


def arrow_field(column: StandardColumn) -> pa.Field:
    return pa.field(column.name, _ARROW_TYPES[column.spark_type], nullable=column.is_nullable)


def without_dictionaries(table: pa.Table) -> pa.Table:
    """Returns the rows with the values of dictionaries in their places."""
    plain = [
        column.with_type(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.schema
    ]
    return table.cast(pa.schema(plain))


class BlockMaker:
    """Converts the records of one partition for a task."""

    def __init__(self, order: TaskSpec, partition: int) -> None:
        self._order = order
        self._partition = partition
        self._schema = table_schema(order)
        self._converter = converter_of(order.recipe)
        is_orc = order.recipe.layout.format == ORC and not order.rounds
        is_raw = order.recipe.payload == RAW
        self._json = None if is_raw else JsonRows(order.schema.members, rounds=order.rounds, is_orc=is_orc)
        typed = [member for member in order.schema.members if refused([member], [[member[0], "json"]])]
        self._refused = OfSame(partial(refused, typed)) if typed else None
        self._compiled = CompiledRows(order.schema.members)
        self._costs = ValueCosts(order.schema.members)
        self._column_names = {name for name, _ in columns(order.schema.members)}
        self._drops_headers = order.recipe.drops(DROP_HEADERS)
        self._event_field = _event_field(order.recipe)
        self._event_at = _column_of(order.schema.members, self._event_field)

    def make(self, records: RecordColumns) -> Iterator[Block]:
        """Yields blocks in order: several if the records together would take too much memory.

        Raises NoEventTime if the recipe's fallback is `fail`.
        """
        return map(self._block, self._payloads(records))

    def _block(self, payload: _Payload) -> Block:
        records, dead = payload.records, payload.dead
        record_times = self._held_times(microseconds(records.timestamps))
        event_time, fallbacks, beyond = self._event_times(payload, record_times)
        arrays = [*self._standard_arrays(records, record_times, event_time), *payload.arrays]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if event_time.null_count:
            dead += self._timeless(records, event_time, beyond)
            rows = rows.filter(event_time.is_valid())
        return Block(rows, dead, payload.seen, fallbacks, payload.misfits, payload.filtered)

    def _payloads(self, records: RecordColumns) -> Iterator[_Payload]:
        if self._json is None:
            yield _Payload(records, [records.values])
        elif self._converter is None:
            yield from self._decoded(records, None)
        else:
            for start, end in runs_of_bytes(value_sizes(records.values), _CONVERTED_BYTES):
                yield from self._converted(self._converter, records.part(start, end))

    def _converted(self, converter: Converter, records: RecordColumns) -> Iterator[_Payload]:
        done = converter.convert(records.values.to_pylist())
        dead = [self._dead_letter(records, at, Bad(bad.reason, bad.message)) for at, bad in done.bad.items()]
        texts, filtered = done.texts, len(done.filtered)
        if dead or filtered:
            good = [at for at in range(len(records)) if at not in done.bad and at not in done.filtered]
            records, texts = _taken(records, good), [texts[at] for at in good]
        for payload in self._decoded(records, texts):
            payload.dead, dead = [*dead, *payload.dead], []
            payload.filtered, filtered = filtered, 0
            yield payload

    def _decoded(self, records: RecordColumns, texts: Sequence[bytes | None] | None) -> Iterator[_Payload]:
        """Yields the payloads of JSON values: `texts`, else the values of the records."""
        payloads: Sequence[bytes | None] = texts or ()
        has_large = self._order.bounds_records and self._costs.may_be_large(_longest(records.values, texts))
        if has_large:
            payloads = records.values.to_pylist() if texts is None else texts
            has_large = any(map(self._costs.is_large, payloads))
        if not has_large:
            arrays = self._compiled.arrays(records.values if texts is None else pa.array(texts, pa.binary()))
            if arrays is not None:
                yield _Payload(records, [*arrays, pa.nulls(len(records), pa.string())], texts)
                return
        if not payloads and texts is None:
            payloads = records.values.to_pylist()
        runs = list(self._costs.runs(payloads, isolates=has_large))
        if len(runs) == 1:
            yield self._rows(records, texts, payloads, is_large=has_large)
            return
        for start, end in runs:
            yield from self._decoded(records.part(start, end), None if texts is None else texts[start:end])

    def _rows(
        self,
        records: RecordColumns,
        texts: Sequence[bytes | None] | None,
        values: Sequence[bytes | None],
        *,
        is_large: bool,
    ) -> _Payload:
        assert self._json is not None
        raw = records.values
        without = self._refused_of(raw)
        rows = self._json.decode_large(values[0] or b"", *without) if is_large else self._json.decode(values, without)
        seen = leftover_members(rows, _SEEN_MEMBERS_MAX, lambda at: self._declared(raw[at].as_py()))
        wrong = misfits(rows, self._column_names)
        dead = [self._dead_letter(records, at, bad) for at, bad in rows.bad.items()]
        if rows.bad:
            good = [at for at in range(len(records)) if at not in rows.bad]
            records, rows = _taken(records, good), _rows_of(rows, good)
            texts = None if texts is None else [texts[at] for at in good]
        arrays = [*payload_arrays(self._order.schema.members, rows.structs), extra_array(rows)]
        return _Payload(records, arrays, texts, dead, seen, wrong)

    def _declared(self, value: bytes | None) -> Members:
        return [] if self._converter is None else self._converter.declared(value)

    def _refused_of(self, values: pa.Array) -> list[frozenset[str]]:
        """Returns the members of each value that their columns refuse; nothing if no column does."""
        if self._refused is None or self._converter is None:
            return []
        return [self._refused(self._declared(value)) for value in values.to_pylist()]

    def _event_column(self, payload: Sequence[pa.Array]) -> pa.Array | None:
        """Returns the payload column with the event time; None if there is none or `_extra` has a value."""
        if self._event_at is None or payload[-1].null_count < len(payload[-1]):
            return None
        return payload[self._event_at]

    def _event_times(self, payload: _Payload, record_times: pa.Array) -> tuple[pa.Array, int, pa.Array | None]:
        """Returns microseconds, null without a time; how many records use their own timestamp; which have a time
        beyond the bounds, None if none has.
        """
        if self._event_field is None:
            return record_times, 0, None
        column = self._event_column(payload.arrays)
        if column is not None:
            times = parse_column(column, self._event_field.read)
        else:
            texts = payload.records.values.to_pylist() if payload.texts is None else payload.texts
            times = self._event_field.times(texts)
        times = self._held_times(times)
        beyond = beyond_bounds(times, record_times, self._order.recipe)
        if beyond is not None:
            times = pc.if_else(beyond, pa.scalar(None, pa.int64()), times)
        if self._order.recipe.event_time_fallback != RECORD or not times.null_count:
            return times, 0, beyond
        filled = pc.coalesce(times, record_times)
        return filled, times.null_count - filled.null_count, beyond

    def _held_times(self, times: pa.Array) -> pa.Array:
        """Returns times without those that the format of the files cannot hold, which then count as none."""
        if self._order.recipe.layout.format != ORC or self._order.rounds:
            return times
        is_held = pc.less_equal(pc.abs(times), ORC_US_MAX)
        return pc.if_else(is_held, times, pa.scalar(None, pa.int64()))

    def _timeless(self, records: RecordColumns, event_time: pa.Array, beyond: pa.Array | None) -> list[DeadLetter]:
        task, recipe = self._order.task, self._order.recipe
        origin = recipe.event_time or "the timestamp of the record"
        bad = Bad("no_event_time", f"no time in {origin}")
        far = Bad("event_time_out_of_bounds", f"the time in {origin} is too far from the timestamp of the record")
        timeless = [at for at, is_null in enumerate(event_time.is_null().to_pylist()) if is_null]
        if recipe.event_time_fallback == FAIL:
            why = far if beyond is not None and beyond[timeless[0]].as_py() else bad
            raise NoEventTime(
                f"{task.topic} partition {self._partition} offset {records.offsets[timeless[0]]}: {why.message}",
                hint="abandon the plan (penstock ingest abandon), then choose another --event-time-fallback",
            )
        is_far = [False] * len(records) if beyond is None else beyond.to_pylist()
        return [self._dead_letter(records, at, far if is_far[at] else bad) for at in timeless]

    def _dead_letter(self, records: RecordColumns, at: int, bad: Bad) -> DeadLetter:
        offset, timestamp, key, value, headers = (column[at].as_py() for column in records)
        return DeadLetter(self._partition, offset, offset, timestamp, key, value, headers, bad.reason, bad.message)

    def _standard_arrays(self, records: RecordColumns, record_times: pa.Array, event_time: pa.Array) -> list[pa.Array]:
        """Returns an array for each of the leading columns, in their order."""
        task = self._order.task
        rows = len(records)
        return [
            self._constant(task.topic, rows),
            *([self._constant(self._order.topic_id, rows)] if self._order.topic_id else []),
            pa.repeat(pa.scalar(self._partition, pa.int32()), rows),
            records.offsets,
            record_times.cast(TIMESTAMP),
            records.keys,
            headers_array([()] * rows) if self._drops_headers else records.headers,
            event_time.cast(TIMESTAMP),
            pa.repeat(pa.scalar(self._order.number, pa.int64()), rows),
            self._constant(self._order.schema.schema_id, rows),
        ]

    def _constant(self, text: str, rows: int) -> pa.Array:
        if not self._order.codes_constants:
            return pa.repeat(text, rows)
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), rows), pa.array([text], pa.string()))


def _event_field(recipe: Recipe) -> EventField | None:
    return EventField(recipe.event_time, reader_of(recipe)) if recipe.event_time else None


def _column_of(members: Members, event_field: EventField | None) -> int | None:
    """Returns the index of the payload column with the event time; None if the values must be parsed."""
    for at, (name, kind) in enumerate(columns(members)):
        if event_field and (name,) == event_field.path and kind in ("string", "bigint"):
            return at
    return None


def record_timestamp(timestamp_ms: int) -> int | None:
    """Returns a record's timestamp in ms; None without one (-1) or outside the calendar."""
    return timestamp_ms if 0 <= timestamp_ms <= LATEST_MS else None


def microseconds(timestamps: pa.Array) -> pa.Array:
    """Converts timestamps in ms; null for one outside the calendar, as record_timestamp has it."""
    is_known = pc.and_(pc.greater_equal(timestamps, 0), pc.less_equal(timestamps, LATEST_MS))
    return pc.multiply(pc.if_else(is_known, timestamps, pa.scalar(None, pa.int64())), 1000)


def _longest(values: pa.Array, texts: Sequence[bytes | None] | None) -> int:
    """Returns the bytes of the longest value."""
    if texts is not None:
        return max((len(text) for text in texts if text is not None), default=0)
    return pc.max(pc.binary_length(values)).as_py() or 0


def value_sizes(values: pa.Array) -> np.ndarray:
    """Returns the bytes of each value; 0 for null."""
    return np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64)


def runs_of_bytes(sizes: np.ndarray, run_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields the start and the end of runs of values of about this size, at least one value each."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + run_bytes, side="right")))
        yield start, end
        start = end


def _taken(records: RecordColumns, good: Sequence[int]) -> RecordColumns:
    return RecordColumns(*(column.take(pa.array(good, pa.int64())) for column in records))


def _rows_of(rows: Rows, good: Sequence[int]) -> Rows:
    leftovers = {now: rows.leftovers[at] for now, at in enumerate(good) if at in rows.leftovers}
    return Rows([rows.structs[at] for at in good], leftovers)
