"""Makes the file of one group of a rewrite: the rows of its inputs, less those that the rewrite drops.

The result depends only on the plan and on the inputs, whose SHA-256 the plan has: every attempt makes the same file.
A rewrite that drops no rows copies large row groups that stay as they are (rewritten_file.py).

Memory: one row group of an input, one of the new file, and the bytes of both files. With `distinct`, also that column
and the order of all inputs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.tiering.store.store import NoSuchObject, ObjectStore
from spark_ingest.errors import HistoryDamaged, IngestRefused
from spark_ingest.output import names
from spark_ingest.output.owners import layouts_of
from spark_ingest.output.rewrites import Group, RewritePlan, Rewritten
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.output.table_files import sha256, store_once
from spark_ingest.source.slices import Range
from spark_ingest.types.json_types import Members
from spark_ingest.types.standard_columns import EXTRA
from spark_ingest.upkeep.lift import lifted
from spark_ingest.upkeep.rewritten_file import OpenedFile, RewrittenFile, codec_of
from spark_ingest.upkeep.unified_columns import Unfit, unified, unified_schema

HELD_BYTES = 128 << 20
_ORDER = ("_event_time", "_partition", "_offset")  # the row that stays of equal ones has the greatest


def rewrite_group(output: ObjectStore, plan: RewritePlan, at: int) -> Rewritten:
    """Stores the file of a group. Raises HistoryDamaged, IngestRefused, OutputConflict."""
    group, moved = plan.groups[at], Counter[str]()
    inputs = _Inputs(output, group)
    try:
        schema = unified_schema([inputs.schema(file) for file in group.inputs], plan.members.get(group.topic, []))
        has_distinct = {plan.distinct, *_ORDER} <= set(schema.names)  # dead letters and other tables do not
        newest_rows = _newest_rows(inputs, schema, plan.distinct) if has_distinct else None
        made = RewrittenFile(group, schema, inputs.codec(), inputs.row_group_count())
        drops = newest_rows is not None or bool(plan.key_sha256) or bool(plan.replay)
        start = 0
        for file, opened, row_group in inputs.row_groups():
            if not drops and (copied := made.copyable(opened, row_group, lifts=plan.lifts)) is not None:
                made.copy(copied, file)
                continue
            table = opened.parquet.read_row_group(row_group)
            rows = unified(table, schema)
            if plan.lifts and EXTRA.name in schema.names:
                rows, counts = lifted(rows, plan.members.get(group.topic, []))
                moved.update({name: count for name, count in counts.items() if name in table.schema.names})
            if newest_rows is not None:
                rows = rows.filter(pa.array(newest_rows[start : start + table.num_rows]))
            if plan.key_sha256:
                rows = rows.filter(pc.invert(has_key(rows["_key"], plan.key_sha256)))
            if plan.replay:
                rows = rows.filter(pc.invert(is_replayed(rows, plan.replay, plan.ranges.get(group.topic, ()))))
            start += table.num_rows
            made.add(rows)
    except (Unfit, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        hint = "the file stays as it is; its rows are in no other"
        raise IngestRefused(f"files of {group.directory} cannot become one: {error}", hint=hint) from error
    return _store_file(output, plan, at, made, dict(moved))


def has_key(keys: pa.ChunkedArray, key_sha256: str) -> pa.Array:
    """Returns which keys have the digest. Null is not a key."""
    encoded = pc.dictionary_encode(keys.combine_chunks())
    has_digest = [
        key is not None and hashlib.sha256(key).hexdigest() == key_sha256 for key in encoded.dictionary.to_pylist()
    ]
    if not any(has_digest):
        return pa.array(np.zeros(len(keys), dtype=bool))
    return pc.fill_null(pc.take(pa.array(has_digest), encoded.indices), False)


def is_older(output: ObjectStore, file: StoredFile, members: Members) -> bool:
    """Returns whether a rewrite with `lifts` gives the rows of a file other types, or moves values of `_extra`.

    True for a file that cannot be read, so that the rewrite names it.
    """
    try:
        opened = pq.ParquetFile(pa.BufferReader(output.get(file.key)))
        schema = unified_schema([opened.schema_arrow], members)
        if any(schema.field(field.name).type != field.type for field in opened.schema_arrow):
            return True
        if EXTRA.name not in opened.schema_arrow.names:
            return False
        for at in range(opened.num_row_groups):
            extra = opened.read_row_group(at, columns=[EXTRA.name])[EXTRA.name]
            if extra.null_count < len(extra) and lifted(unified(opened.read_row_group(at), schema), members)[1]:
                return True
        return False
    except (NoSuchObject, Unfit, pa.ArrowException, OSError):
        return True


def is_replayed(rows: pa.Table, replay: int, ranges: Sequence[Range]) -> pa.Array:
    """Returns which rows or dead letters an earlier commit than `replay` wrote, and are within the ranges."""
    names_of = ("_ingest_commit", "_partition", "_offset")
    commits, partitions, offsets = (np.asarray(rows[name].cast(pa.int64())) for name in names_of)
    lasts = np.asarray(rows["_last_offset"]) if "_last_offset" in rows.schema.names else offsets
    is_in_ranges = np.zeros(rows.num_rows, dtype=bool)
    for span in ranges:
        is_in_ranges |= (partitions == span.partition) & (offsets >= span.start) & (lasts < span.end)
    return pa.array(is_in_ranges & (commits < replay))


def _store_file(
    output: ObjectStore, plan: RewritePlan, at: int, made: RewrittenFile, moved: dict[str, int]
) -> Rewritten:
    group = plan.groups[at]
    dropped = sum(file.rows for file in group.inputs) - made.rows
    if not made.rows:
        return Rewritten(at, group.topic, group.inputs, None, dropped, moved)
    number = max(names.plan_number_of(file.key) or 0 for file in group.inputs)
    is_table = group.directory.startswith(names.table_prefix(group.topic))
    template = layouts_of(output)(group.topic).file_name if is_table else ""
    name = names.rewritten_file_name(group.topic, made.first, made.last, number, plan.number, at, template)
    data = store_once(output, group.directory + name, made.finish())
    file = StoredFile(group.directory + name, made.rows, len(data), sha256(data), made.first, made.last)
    return Rewritten(at, group.topic, group.inputs, file, dropped, moved)


class _Inputs:
    """Reads the files of a group. Keeps up to HELD_BYTES of them in memory, as each is needed for its columns first."""

    def __init__(self, output: ObjectStore, group: Group) -> None:
        self._output = output
        self._group = group
        self._held: dict[str, OpenedFile] = {}
        self._held_bytes = 0
        self._row_groups: dict[str, int] = {}

    def schema(self, file: StoredFile) -> pa.Schema:
        return self._open(file).parquet.schema_arrow

    def row_group_count(self) -> int:
        """Returns the number of row groups of the files that were opened."""
        return sum(self._row_groups.values())

    def codec(self) -> str:
        """Returns the codec of the newest file, because the topic's setting may have changed."""
        newest = max(self._group.inputs, key=lambda file: (names.plan_number_of(file.key) or 0, file.key))
        return codec_of(self._open(newest).parquet.metadata.row_group(0))

    def row_groups(self) -> Iterator[tuple[StoredFile, OpenedFile, int]]:
        """Yields the row groups of all files by their numbers, in the order of the plan."""
        for file in self._group.inputs:
            opened = self._open(file)
            for at in range(opened.parquet.num_row_groups):
                yield file, opened, at

    def tables(self) -> Iterator[pa.Table]:
        return (opened.parquet.read_row_group(at) for _, opened, at in self.row_groups())

    def _open(self, file: StoredFile) -> OpenedFile:
        """Raises HistoryDamaged if the file is missing or is not the committed one."""
        if file.key in self._held:
            return self._held[file.key]
        hint = "penstock ingest verify --deep reports all problems"
        try:
            data = self._output.get(file.key)
        except NoSuchObject as error:
            raise HistoryDamaged(f"{file.key} is missing", hint=hint) from error
        if sha256(data) != file.sha256:
            raise HistoryDamaged(f"{file.key} differs from the committed file", hint=hint)
        opened = OpenedFile(data)
        self._row_groups[file.key] = opened.parquet.num_row_groups
        if opened.parquet.metadata.num_rows != file.rows:
            raise HistoryDamaged(f"{file.key} has not {file.rows} rows", hint=hint)
        if self._held_bytes + len(data) <= HELD_BYTES:
            self._held[file.key] = opened
            self._held_bytes += len(data)
        return opened


def _newest_rows(inputs: _Inputs, schema: pa.Schema, column: str) -> np.ndarray:
    """Returns for each row whether it stays: the last one of each value. Null is a value of its own in each row.

    Raises Unfit for a column of lists or structs.
    """
    needed_schema = pa.schema([schema.field(name) for name in dict.fromkeys((*_ORDER, column))])
    table = pa.concat_tables([unified(table, needed_schema) for table in inputs.tables()])
    try:
        values = pc.dictionary_encode(table[column].combine_chunks())
    except pa.ArrowNotImplementedError as error:
        raise Unfit(f"values of column {column} cannot be compared: {table[column].type}") from error
    codes = np.asarray(pc.fill_null(values.indices, -1).cast(pa.int64()))
    order = np.lexsort([np.asarray(table[name].cast(pa.int64())) for name in reversed(_ORDER)])
    stays = codes < 0
    newest = np.full(len(values.dictionary), -1, dtype=np.int64)
    newest[codes[order][codes[order] >= 0]] = order[codes[order] >= 0]
    stays[newest[newest >= 0]] = True
    return stays
