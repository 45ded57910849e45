"""Encodes Parquet files in memory and stores each once. names.py has their names.

The same rows give the same bytes within a release of the Parquet library. Across releases the rows are compared.

Invariant: an existing object is never overwritten, and accepted only if it has the same rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.tiering.store.store import ObjectExists, ObjectStore, read_in_pieces
from spark_ingest.decode.blocks import TIMESTAMP, DeadLetter, record_timestamp
from spark_ingest.decode.record_columns import HEADERS
from spark_ingest.errors import OutputConflict
from spark_ingest.plan import TaskSpec

ROW_GROUP_ROWS = 1 << 20
_ZSTD_LEVEL = 1  # higher levels cost more time than the bytes are worth (docs/ingest.md, figures)
_DICTIONARY_ROWS_MIN = 1000  # in a smaller file dictionaries cost a third of the time and make it larger
_SAMPLE_ROWS = 4096
_SMALL_ROWS_MAX = 4 * _SAMPLE_ROWS  # of a file whose columns compress as those of the sample
_COMPRESSED_MOST = 15 / 16  # of a column's bytes: if more are left, compression is not worth its time
_PIECES_FROM_BYTES = 32 << 20  # a larger file that exists is compared in pieces
_OF_A_TASK = ("_partition", "_ingest_commit")  # numbers with few values in the files of a task
_NEVER_REPEATING = frozenset({"_offset", "_timestamp", "_key", "_headers", "_event_time", "_extra", "_value"})

DEAD_LETTER_SCHEMA = pa.schema(
    [
        pa.field("_topic", pa.string(), nullable=False),
        pa.field("_topic_id", pa.string()),
        pa.field("_partition", pa.int32(), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_last_offset", pa.int64(), nullable=False),
        pa.field("_timestamp", TIMESTAMP),
        pa.field("_key", pa.binary()),
        pa.field("_value", pa.binary()),
        pa.field("_headers", HEADERS),
        pa.field("_reason", pa.string(), nullable=False),
        pa.field("_message", pa.string(), nullable=False),
        pa.field("_ingest_commit", pa.int64(), nullable=False),
        pa.field("_schema_id", pa.string(), nullable=False),
    ]
)


def parquet_bytes(
    table: pa.Table, codec: str = "zstd", repeating: Sequence[str] | None = None, incompressible: Collection[str] = ()
) -> bytes:
    """Encodes a file. `repeating` and `incompressible` are what `repeating_leaves` and `incompressible_leaves` found in
    all rows, these among them.
    """
    sink = pa.BufferOutputStream()
    plain = {*_null_leaves(table), *(incompressible if is_small(table) else ())}
    options = write_options(table.schema, table.num_rows, codec, repeating, plain)
    pq.write_table(table, sink, row_group_size=ROW_GROUP_ROWS, **options)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def write_options(
    schema: pa.Schema,
    rows: int,
    codec: str = "zstd",
    repeating: Sequence[str] | None = None,
    plain: Collection[str] = (),
) -> dict[str, Any]:
    """Returns how a file of `rows` rows is encoded. Without `repeating` most columns have a dictionary.

    Not compressed are dictionaries of one value and the leaf columns `plain`: each compressed page costs some
    microseconds more, whatever is in it.
    """
    if repeating is None:
        repeating = [
            path for field in schema if field.name not in _NEVER_REPEATING for path in _leaves(field.name, field.type)
        ]
    has_dictionaries = rows >= _DICTIONARY_ROWS_MIN
    coded = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    tiny = {*plain, *coded, *_OF_A_TASK} if coded and has_dictionaries else {*plain}
    compressed = [path for field in schema for path in _leaves(field.name, field.type) if path not in tiny]
    return {
        "compression": dict.fromkeys(compressed, codec),
        "compression_level": dict.fromkeys(compressed, _ZSTD_LEVEL) if codec == "zstd" else None,
        "use_dictionary": list(repeating) if has_dictionaries else False,
        "store_schema": False,  # types survive without it, and in a small file it is a third of the bytes
    }


def repeating_leaves(table: pa.Table) -> list[str]:
    """Returns the Parquet paths of the leaf columns whose values repeat in the first rows, and of all within lists.

    A dictionary of values that do not repeat costs a fifth of the time of a file, and makes it larger.
    """
    first = table.slice(0, _SAMPLE_ROWS).combine_chunks()
    return [
        path
        for name in first.schema.names
        if name not in _NEVER_REPEATING and first.num_rows
        for path in _repeating(name, first[name].chunk(0))
    ]


def is_small(table: pa.Table) -> bool:
    """Returns whether the pages of a file are so small that those without a gain are not compressed. A file with fewer
    rows has no dictionaries, so that its columns are not those of the sample.
    """
    return bool(_DICTIONARY_ROWS_MIN <= table.num_rows <= _SMALL_ROWS_MAX)


def incompressible_leaves(table: pa.Table, codec: str, repeating: Sequence[str]) -> list[str]:
    """Returns the Parquet paths of the leaf columns that compression makes hardly smaller in the first rows: mostly
    those of dictionaries, whose pages are packed bits.
    """
    data = parquet_bytes(table.slice(0, _SAMPLE_ROWS), codec, repeating)
    row_group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    columns = [row_group.column(at) for at in range(row_group.num_columns)]
    return [
        column.path_in_schema
        for column in columns
        if column.compression != "UNCOMPRESSED"
        and column.total_compressed_size > _COMPRESSED_MOST * column.total_uncompressed_size
    ]


def store_once(output: ObjectStore, key: str, data: bytes) -> bytes:
    """Create an object; returns its bytes, those of the existing object if there is one.

    Raises OutputConflict if the existing object has different rows.
    """
    try:
        output.put(key, data, if_absent=True)
    except ObjectExists as error:
        if len(data) > _PIECES_FROM_BYTES and is_same(output, key, data):
            return data
        existing = output.get(key)
        if existing != data and not _has_same_rows(existing, data):
            raise OutputConflict(
                f"{key} exists in {output.url} with different rows",
                hint="another program or another release wrote it; remove it or abandon the plan",
            ) from error
        return existing
    return data


def is_same(output: ObjectStore, key: str, data: bytes) -> bool:
    """Returns whether an object has these bytes; reads it in pieces, because it may be as large as a file can be."""
    info = output.head(key)
    if info is None or info.size_bytes != len(data):
        return False
    start = 0
    for piece in read_in_pieces(output, key, len(data)):
        if piece != data[start : start + len(piece)]:
            return False
        start += len(piece)
    return start == len(data)


def dead_letter_table(order: TaskSpec, letters: Sequence[DeadLetter]) -> pa.Table:
    """Returns the rows; without `_topic_id` for a plan of an older release."""
    record_times = [record_timestamp(letter.timestamp) for letter in letters]
    columns: list[Sequence[object]] = [
        [order.task.topic] * len(letters),
        [order.dead_letter_topic_id] * len(letters),
        [letter.partition for letter in letters],
        [letter.offset for letter in letters],
        [letter.last_offset for letter in letters],
        [None if timestamp is None else timestamp * 1000 for timestamp in record_times],
        [letter.key for letter in letters],
        [letter.value for letter in letters],
        [list(letter.headers) for letter in letters],
        [letter.reason for letter in letters],
        [letter.message for letter in letters],
        [order.number] * len(letters),
        [order.schema.schema_id] * len(letters),
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, DEAD_LETTER_SCHEMA, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=DEAD_LETTER_SCHEMA)
    return table if order.dead_letter_topic_id else table.drop_columns(["_topic_id"])


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _has_same_rows(stored: bytes, data: bytes) -> bool:
    try:
        theirs = pq.read_table(pa.BufferReader(stored))
    except pa.ArrowInvalid:
        return False
    return bool(theirs.equals(pq.read_table(pa.BufferReader(data))))


def _repeating(path: str, values: pa.Array) -> list[str]:
    if pa.types.is_struct(values.type):
        return [leaf for field in values.type for leaf in _repeating(f"{path}.{field.name}", values.field(field.name))]
    if pa.types.is_nested(values.type):
        return _leaves(path, values.type)
    if pa.types.is_dictionary(values.type):
        return [path]
    return [path] if 2 * pc.count_distinct(values, mode="all").as_py() <= len(values) else []


def _null_leaves(table: pa.Table) -> list[str]:
    return [
        path
        for name, column in zip(table.schema.names, table.columns, strict=True)
        if column.null_count == len(column) or (pa.types.is_map(column.type) and not _entries(column))
        for path in _leaves(name, column.type)
    ]


def _entries(column: pa.ChunkedArray) -> int:
    """Returns the number of entries of maps."""
    return sum(len(chunk.keys) for chunk in column.chunks)


def _leaves(path: str, kind: pa.DataType) -> list[str]:
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in _leaves(f"{path}.{field.name}", field.type)]
    if pa.types.is_list(kind):
        return _leaves(f"{path}.list.element", kind.value_type)
    if pa.types.is_map(kind):
        return [*_leaves(f"{path}.key_value.key", kind.key_type), *_leaves(f"{path}.key_value.value", kind.item_type)]
    return [path]
