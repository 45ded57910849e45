"""The schema of a table as a JSON object with Spark's DDL, for readers.

Spark infers columns from one file only. `spark.read.schema(ddl).parquet(table)` gives all of them.
"""

from __future__ import annotations

import msgspec

from spark_ingest.decode.json_types import spark_ddl
from spark_ingest.decode.standard_columns import EXTRA, LEADING, VALUE
from spark_ingest.layout import DEFAULT, LINE_COLUMN, LINES, Layout
from spark_ingest.plan import RAW, TableSchema


def schema_document(topic: str, payload: str, schema: TableSchema, layout: Layout = DEFAULT) -> bytes:
    document = {
        "topic": topic,
        "schema_id": schema.schema_id,
        "payload": payload,
        "members": schema.members,
        "format": layout.format,
        "spark_ddl": table_ddl(payload, schema, layout),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def table_ddl(payload: str, schema: TableSchema, layout: Layout = DEFAULT) -> str:
    """Returns the DDL of all columns; the partition columns are last."""
    leading = [one.ddl for one in LEADING]
    own = [VALUE.ddl] if payload == RAW else [spark_ddl(schema.members), EXTRA.ddl]
    if layout.format == LINES:
        leading, own = [], [f"`{LINE_COLUMN}` STRING"]
    partitions = [f"`{name}` {kind}" for name, kind in layout.partition_columns.items()]
    return ", ".join([*leading, *filter(None, own), *partitions])
