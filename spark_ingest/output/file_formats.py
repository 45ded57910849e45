"""The formats of data files: how rows are encoded, and how the place and time of each row are read back.

`parquet`, `orc` and `avro` have the columns as they are. `jsonl` has an object a line, `csv` a line with a header, and
`delimited` the same with another separator: bytes are base64 text, times ISO 8601; in `csv` and `delimited` arrays and
structs are JSON text, and null is an empty field, "" empty text. `text` has the values of one column, each a line:
bytes as they are, other values as in `csv`, null as an empty line, and a space for the end of a line within a value. It
has no places.

The same rows give the same bytes within a release of the libraries: no format has a time or a random number.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from functools import partial
from types import ModuleType
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq

from spark_ingest.decode.blocks import without_dictionaries
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import AVRO, CODECS, JSONL, LINES, ORC, PARQUET, STREAM_CODECS, Layout
from spark_ingest.output.table_files import parquet_bytes

BATCH_ROWS = 10_000  # of Python objects in memory at once
TIMESTAMP = pa.timestamp("us", "UTC")
PLACES = pa.schema(
    [
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_event_time", TIMESTAMP),
        ("_ingest_commit", pa.int64()),
    ]
)
_BLOCK_BYTES_MAX = 2**31 - 1  # of Arrow's reader of CSV
_OF_AVRO = (ValueError, EOFError, IndexError, TypeError, ArithmeticError)  # by fastavro, for damaged files
_END_OF_LINE = re.compile(rb"\r\n|[\r\n]")
_JSON = msgspec.json.Encoder(decimal_format="number")


class Unreadable(Exception):
    """A file is not what its name says."""


def file_bytes(
    table: pa.Table, layout: Layout, repeating: Sequence[str] | None = None, incompressible: Collection[str] = ()
) -> bytes:
    """Encodes a data file; `repeating` and `incompressible` are for Parquet, see table_files.py."""
    if layout.format == PARQUET:
        return parquet_bytes(table, layout.codec, repeating, incompressible)
    table = without_dictionaries(table)
    sink = pa.BufferOutputStream()
    if layout.format == ORC:
        pa.orc.write_table(table, sink, compression=CODECS[ORC][layout.codec])
        data: bytes = sink.getvalue().to_pybytes()
        return data
    if layout.format == AVRO:
        container: bytes = _avro().avro_bytes(table, CODECS[AVRO][layout.codec])
        return container
    write: Callable[[pa.Table, pa.NativeFile], None] = partial(_write_csv, delimiter=layout.delimiter or ",")
    if layout.format in (JSONL, LINES):
        write = _write_lines if layout.format == JSONL else partial(_write_text, name=layout.column)
    if layout.codec in STREAM_CODECS:
        with closing(pa.CompressedOutputStream(sink, layout.codec)) as stream:
            write(table, stream)
    else:
        write(table, sink)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _write_lines(table: pa.Table, sink: pa.NativeFile) -> None:
    for batch in table.to_batches(BATCH_ROWS):
        sink.write(b"".join(_JSON.encode(row) + b"\n" for row in batch.to_pylist()))


def _avro() -> ModuleType:
    """Returns the module of Avro files, which needs fastavro. Raises IngestRefused."""
    try:
        from spark_ingest.output import avro_files
    except ModuleNotFoundError as error:
        hint = "pip install --find-links dist 'penstock-server[formats]', or make setup in a clone"
        raise IngestRefused(f"format avro needs {error.name}, which is not installed", hint=hint) from error
    return avro_files


def _write_csv(table: pa.Table, sink: pa.NativeFile, delimiter: str) -> None:
    schema = pa.schema([pa.field(field.name, _csv_type(field.type)) for field in table.schema])
    with pa.csv.CSVWriter(sink, schema, write_options=pa.csv.WriteOptions(delimiter=delimiter)) as writer:
        for batch in table.to_batches(BATCH_ROWS):
            writer.write_batch(pa.record_batch([_csv_column(column) for column in batch.columns], schema=schema))


def _write_text(table: pa.Table, sink: pa.NativeFile, name: str) -> None:
    """Raises IngestRefused without the column."""
    if name not in table.schema.names:
        hint = "abandon the plan; then write the name of a column as text_column, or declare it in columns"
        raise IngestRefused(f"the table has no column {name} for the lines of its files", hint=hint)
    for batch in table.select([name]).to_batches(BATCH_ROWS):
        column = batch.column(0)
        texts = column if pa.types.is_binary(column.type) else _csv_column(column).cast(pa.string()).cast(pa.binary())
        lines = [_END_OF_LINE.sub(b" ", text or b"") for text in texts.to_pylist()]
        sink.write(b"".join([line + b"\n" for line in lines]))


def count_lines(data: bytes, layout: Layout) -> int:
    """Returns the number of lines of a `text` file. Raises Unreadable."""
    stream = pa.BufferReader(data)
    try:
        if layout.codec in STREAM_CODECS:
            stream = pa.CompressedInputStream(stream, layout.codec)
        lines: bytes = stream.read()
    except (pa.ArrowException, OSError) as error:
        raise Unreadable(str(error)) from error
    return lines.count(b"\n")


def _csv_type(kind: pa.DataType) -> pa.DataType:
    is_plain = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return kind if is_plain else pa.string()


def _csv_column(values: pa.Array) -> pa.Array:
    kind = values.type
    if _csv_type(kind) == kind:
        return values
    if pa.types.is_timestamp(kind):
        return pc.strftime(values, "%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return values.cast(pa.string())
    if pa.types.is_binary(kind):
        return _texts(values, lambda data: b64encode(data).decode())
    return _texts(values, lambda nested: _JSON.encode(nested).decode())


def _texts(values: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else text(value) for value in values.to_pylist()], pa.string())


def read_places(data: bytes, layout: Layout) -> pa.Table:
    """Returns the columns PLACES of a data file. Raises Unreadable."""
    try:
        if layout.format == PARQUET:
            table = pq.read_table(pa.BufferReader(data), columns=PLACES.names)
        elif layout.format == ORC:
            table = pa.orc.ORCFile(pa.BufferReader(data)).read(columns=PLACES.names)
        elif layout.format == AVRO:
            table = _table_of(_avro().avro_places(data), TIMESTAMP)
        else:
            stream = pa.BufferReader(data)
            if layout.codec in STREAM_CODECS:
                stream = pa.CompressedInputStream(stream, layout.codec)
            lines = stream.read()
            table = (
                _places_of_lines(lines) if layout.format == JSONL else _places_of_csv(lines, layout.delimiter or ",")
            )
        return table.select(PLACES.names).cast(PLACES)
    except (pa.ArrowException, OSError, msgspec.DecodeError, KeyError, *_OF_AVRO) as error:
        raise Unreadable(str(error)) from error


class _Line(msgspec.Struct, rename={"partition": "_partition", "offset": "_offset", "time": "_event_time",
                                    "commit": "_ingest_commit"}):  # fmt: skip
    partition: int
    offset: int
    time: str
    commit: int


def _places_of_lines(data: bytes) -> pa.Table:
    lines: Iterable[_Line] = msgspec.json.Decoder(_Line).decode_lines(data)
    return _table_of([(line.partition, line.offset, line.time, line.commit) for line in lines], pa.string())


def _table_of(rows: Sequence[tuple[Any, ...]], time_type: pa.DataType) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    times = pa.array(columns[2], time_type).cast(TIMESTAMP)
    return pa.table([columns[0], columns[1], times, columns[3]], names=PLACES.names)


def _places_of_csv(lines: bytes, delimiter: str) -> pa.Table:
    """Reads the lines as one block, because a line longer than a block is an error."""
    block = pa.csv.ReadOptions(block_size=min(max(len(lines), 1), _BLOCK_BYTES_MAX))
    options = pa.csv.ConvertOptions(
        include_columns=PLACES.names,
        column_types={field.name: field.type for field in PLACES},
        strings_can_be_null=True,
    )
    parse = pa.csv.ParseOptions(newlines_in_values=True, delimiter=delimiter)
    return pa.csv.read_csv(pa.BufferReader(lines), read_options=block, parse_options=parse, convert_options=options)
