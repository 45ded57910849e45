"""The columns of a record in the data source: their names and types, and their values as Arrow arrays.

A raw read has them under these names. A typed read has them with a `_` before the name, as the tables of a job do,
because a member of the JSON values may have the same name.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from spark_ingest.decode.blocks import TIMESTAMP, microseconds
from spark_ingest.decode.record_columns import RecordColumns

HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])))


class Column(NamedTuple):
    """A column type in Spark's DDL and in Arrow."""

    ddl: str
    kind: pa.DataType


COLUMNS = {
    "topic": Column("STRING", pa.string()),
    "partition": Column("INT", pa.int32()),
    "offset": Column("BIGINT", pa.int64()),
    "timestamp": Column("TIMESTAMP", TIMESTAMP),
    "key": Column("BINARY", pa.binary()),
    "value": Column("BINARY", pa.binary()),
    "headers": Column("ARRAY<STRUCT<name: STRING, value: BINARY>>", HEADERS),
}


def record_array(name: str, topic: str, partition: int, records: RecordColumns) -> pa.Array:
    """Returns a column of records of one partition."""
    kind = COLUMNS[name].kind
    match name:
        case "topic":
            return pa.repeat(topic, len(records))
        case "partition":
            return pa.repeat(pa.scalar(partition, kind), len(records))
        case "offset":
            return records.offsets
        case "timestamp":
            return microseconds(records.timestamps).cast(kind)
        case "key":
            return records.keys
        case "value":
            return records.values
        case _:
            return _as_structs(records.headers)


def _as_structs(headers: pa.MapArray) -> pa.Array:
    """Converts a map column to lists of structs, in the same memory."""
    pairs = pa.StructArray.from_arrays([headers.keys, headers.items], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(headers.offsets, pairs, HEADERS)
