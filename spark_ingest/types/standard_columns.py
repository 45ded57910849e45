"""The columns that every table has beside those of its records' members: their names and types. Pure; no Arrow, no I/O.

A type is Spark's; blocks.py maps it to Arrow's and fills the columns.
Invariant: the order is that of the columns in the files.
"""

from __future__ import annotations

from typing import NamedTuple


class StandardColumn(NamedTuple):
    name: str
    spark_type: str
    is_nullable: bool = True

    @property
    def ddl(self) -> str:
        return f"`{self.name}` {self.spark_type}"


TOPIC_ID = StandardColumn("_topic_id", "STRING")  # files of older releases do not have it

# First in every table, whatever the payload.
LEADING = (
    StandardColumn("_topic", "STRING", is_nullable=False),
    TOPIC_ID,
    StandardColumn("_partition", "INT", is_nullable=False),
    StandardColumn("_offset", "BIGINT", is_nullable=False),
    StandardColumn("_timestamp", "TIMESTAMP"),
    StandardColumn("_key", "BINARY"),
    StandardColumn("_headers", "MAP<STRING, BINARY>"),
    StandardColumn("_event_time", "TIMESTAMP", is_nullable=False),
    StandardColumn("_ingest_commit", "BIGINT", is_nullable=False),
    StandardColumn("_schema_id", "STRING", is_nullable=False),
)
EXTRA = StandardColumn("_extra", "STRING")  # last, with payload json
VALUE = StandardColumn("_value", "BINARY")  # last, with payload raw
STANDARD_COLUMNS = tuple(column.name for column in (*LEADING, EXTRA, VALUE))
