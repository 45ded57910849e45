"""The records of a block as Arrow arrays, in memory that the compiled codec has written, or made of decoded records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from engine.format.batch import Record
from engine.format.compiled_batch import Columns, TextColumn, read_columns
from spark_ingest.source.scan import ScannedBatch
from spark_ingest.source.slices import Slice

HEADERS = pa.map_(pa.string(), pa.binary())


class RecordColumns(NamedTuple):
    """Records in the order of their offsets. Timestamps are milliseconds; a repeated header name occurs twice."""

    offsets: pa.Array
    timestamps: pa.Array
    keys: pa.Array
    values: pa.Array
    headers: pa.Array

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, start: int, end: int) -> RecordColumns:
        return RecordColumns(*(column.slice(start, end - start) for column in self))


def columns_of(batches: Iterable[ScannedBatch]) -> RecordColumns:
    """Returns the records of scanned batches of one partition. There must be at least one batch."""
    parts = [
        part for source, some in groupby(batches, lambda batch: batch.source) for part in _parts(source, list(some))
    ]
    return parts[0] if len(parts) == 1 else RecordColumns(*map(pa.concat_arrays, zip(*parts, strict=True)))


def _parts(source: Slice, batches: Sequence[ScannedBatch]) -> Iterable[RecordColumns]:
    """Yields the records of batches of one slice: runs that the compiled codec reads, and others."""
    for is_plain, some in groupby(batches, lambda batch: batch.plain is not None):
        run = list(some)
        if is_plain:
            plain = [batch.plain for batch in run if batch.plain is not None]
            yield _arrays(read_columns([*plain], source.start, source.end))
        else:
            yield from_records([record for batch in run for record in batch.decoded])


def from_records(records: Sequence[Record]) -> RecordColumns:
    """Returns the columns of decoded records."""
    return RecordColumns(
        pa.array([record.offset for record in records], pa.int64()),
        pa.array([record.timestamp for record in records], pa.int64()),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        headers_array([record.headers for record in records]),
    )


def headers_array(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    """Builds the map column. A repeated name occurs twice, in order; in the Parquet format the last one counts."""
    if not any(headers):
        nothing = pa.array([], pa.string()), pa.array([], pa.binary())
        return pa.MapArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(headers) + 1), *nothing)
    return pa.array([list(header) for header in headers], HEADERS)


def _arrays(columns: Columns) -> RecordColumns:
    if not columns.record_count:
        return from_records([])
    ends = pa.Array.from_buffers(pa.int32(), columns.record_count + 1, [None, pa.py_buffer(columns.header_ends)])
    names, values = _texts(columns.header_names, pa.string()), _texts(columns.header_values, pa.binary())
    return RecordColumns(
        _numbers(columns.offsets, columns.record_count),
        _numbers(columns.timestamps, columns.record_count),
        _texts(columns.keys, pa.binary()),
        _texts(columns.values, pa.binary()),
        pa.MapArray.from_arrays(ends, names, values),
    )


def _numbers(data: memoryview, count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(data)])


def _texts(column: TextColumn, kind: pa.DataType) -> pa.Array:
    count = max(0, len(column.ends) // 4 - 1)
    if not count:
        return pa.array([], kind)
    is_there = pa.py_buffer(column.is_there) if column.null_count else None
    buffers = [is_there, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, count, buffers, column.null_count)
