"""The schema of a table as a JSON object with Spark's DDL, for readers.

Spark infers columns from one file only. `spark.read.schema(ddl).parquet(table)` gives all of them.
"""

from __future__ import annotations

import msgspec

from spark_ingest.layout import DEFAULT, LINE_COLUMN, LINES, Layout
from spark_ingest.plan import RAW, TableSchema
from spark_ingest.types.json_types import Members, Type, columns
from spark_ingest.types.numbers import is_decimal, precision_of
from spark_ingest.types.standard_columns import EXTRA, LEADING, VALUE


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
    leading = [column.ddl for column in LEADING]
    value_columns = [VALUE.ddl] if payload == RAW else [spark_ddl(schema.members), EXTRA.ddl]
    if layout.format == LINES:
        leading, value_columns = [], [f"`{LINE_COLUMN}` STRING"]
    partitions = [f"`{name}` {kind}" for name, kind in layout.partition_columns.items()]
    return ", ".join([*leading, *filter(None, value_columns), *partitions])


def spark_ddl(members: Members) -> str:
    """Returns the columns as Spark's DDL text for `spark.read.schema`."""
    return ", ".join(f"{_quoted(name)} {_ddl_of(kind)}" for name, kind in columns(members))


def _ddl_of(kind: Type) -> str:
    if isinstance(kind, str):
        if is_decimal(kind):
            return "DECIMAL({},{})".format(*precision_of(kind))
        return "STRING" if kind == "json" else kind.upper()
    if kind[0] == "array":
        return f"ARRAY<{_ddl_of(kind[1])}>"
    return "STRUCT<" + ", ".join(f"{_quoted(name)}: {_ddl_of(column)}" for name, column in columns(kind[1])) + ">"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
