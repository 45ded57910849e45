"""Tables as Hive's metastore and Glue have them: names and types of columns, the formats of files, and the DDL. Pure.

These catalogs ignore case and take few characters in names. A topic whose name is not one of theirs gets a digest at
the end, so no two topics share a table. A column with a name that they cannot take is left out, and named.

Numbers in the names of directories have leading zeros (`hr=05`), so their columns are text here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from spark_ingest.errors import IngestRefused
from spark_ingest.layout import AVRO, CSV, DELIMITED, JSONL, LINE_COLUMN, LINES, NONE, ORC, PARQUET, Layout
from spark_ingest.output import names
from spark_ingest.plan import RAW, TableSchema
from spark_ingest.types.json_types import Type, columns
from spark_ingest.types.standard_columns import EXTRA, LEADING, VALUE

NAME = re.compile(r"[a-z0-9_]{1,120}")
COLUMN = re.compile(r"[^,:;`'\"\\\x00-\x1f]{1,120}")
MEMBER = re.compile(r"[A-Za-z0-9_.$]+")
_HIVE, _SERDE, _TEXT = "org.apache.hadoop.hive.ql.io", "org.apache.hadoop.hive.serde2", "org.apache.hadoop.mapred"
_LINES = (f"{_TEXT}.TextInputFormat", f"{_HIVE}.HiveIgnoreKeyTextOutputFormat")
# The library of each format, and the classes of its input and output.
STORAGE = {
    PARQUET: (
        f"{_HIVE}.parquet.serde.ParquetHiveSerDe",
        f"{_HIVE}.parquet.MapredParquetInputFormat",
        f"{_HIVE}.parquet.MapredParquetOutputFormat",
    ),
    ORC: (f"{_HIVE}.orc.OrcSerde", f"{_HIVE}.orc.OrcInputFormat", f"{_HIVE}.orc.OrcOutputFormat"),
    AVRO: (
        f"{_SERDE}.avro.AvroSerDe",
        f"{_HIVE}.avro.AvroContainerInputFormat",
        f"{_HIVE}.avro.AvroContainerOutputFormat",
    ),
    JSONL: ("org.apache.hive.hcatalog.data.JsonSerDe", *_LINES),
    CSV: (f"{_SERDE}.OpenCSVSerde", *_LINES),
    DELIMITED: (f"{_SERDE}.OpenCSVSerde", *_LINES),
    LINES: (f"{_SERDE}.lazy.LazySimpleSerDe", *_LINES),
}
_HEADERS = "map<string,binary>"
_TYPES_OF_LINES = {"binary": "string", "timestamp": "string", _HEADERS: "array<array<string>>"}
_TEXT_WITHIN = re.compile("(?<=[:<])(?:binary|timestamp)(?=[,>])")  # in lines of JSON, as above
_TYPES_OF_AVRO = {_HEADERS: "array<struct<key:string,value:binary>>"}


@dataclass(frozen=True, slots=True)
class HiveTable:
    """A table of a catalog. `columns` and `partitions` are pairs of name and type."""

    name: str
    columns: tuple[tuple[str, str], ...]
    partitions: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]
    layout: Layout

    @property
    def parameters(self) -> dict[str, str]:
        """Returns what the library of the format needs to know."""
        if self.layout.format not in (CSV, DELIMITED):
            return {}
        return {"separatorChar": self.layout.delimiter or ",", "quoteChar": '"'}

    @property
    def properties(self) -> dict[str, str]:
        is_csv = self.layout.format in (CSV, DELIMITED)
        return {"EXTERNAL": "TRUE"} | ({"skip.header.line.count": "1"} if is_csv else {})


def hive_table(topic: str, payload: str, schema: TableSchema, layout: Layout, name: str = "") -> HiveTable:
    """Returns the table of a topic. Raises IngestRefused for directories from which a catalog takes no partitions."""
    if layout.period != NONE and not layout.partition_columns:
        text = f"{topic} has directories of the form {layout.pattern}, and a catalog takes partitions from name=value"
        raise IngestRefused(text, hint="write name=value in partition_path, or leave it out")
    standard = [(column.name, column.spark_type.lower().replace(", ", ",")) for column in LEADING]
    value_columns: list[tuple[str, str | None]] = [(VALUE.name, "binary")]
    if payload != RAW:
        value_columns = [(member, _type_of(kind)) for member, kind in columns(schema.members)] + [
            (EXTRA.name, "string")
        ]
    if layout.format == LINES:
        standard, value_columns = [], [(LINE_COLUMN, "string")]
    member_columns: list[tuple[str, str]] = []
    left_out = []
    for column, kind in [*standard, *value_columns]:
        if kind is None or not COLUMN.fullmatch(column):
            left_out.append(column)
        else:
            member_columns.append((_name_in_files(column, layout).lower(), _type_in_files(kind, layout)))
    partitions = tuple(
        (column.lower(), "string" if kind == "INT" else kind.lower())
        for column, kind in layout.partition_columns.items()
    )
    return HiveTable(name or table_name(topic), tuple(member_columns), partitions, tuple(left_out), layout)


def table_name(topic: str) -> str:
    """Returns the name of a topic's table: the topic, if a catalog takes it as it is."""
    if NAME.fullmatch(topic):
        return topic
    return f"{re.sub('[^a-z0-9_]', '_', topic.lower())[:100]}_{hashlib.sha256(topic.encode()).hexdigest()[:8]}"


def directories_of(keys: Iterable[str]) -> list[str]:
    """Returns the directories of files, each once."""
    return sorted({key.rpartition("/")[0] + "/" for key in keys})


def partition_values(table: HiveTable, directory: str) -> list[str]:
    """Returns the values of the partition that a directory is."""
    below = directory.removeprefix(names.table_prefix_of(directory))
    parts = dict(part.split("=", 1) for part in below.split("/") if "=" in part)
    return [unquote(parts[name]) for name in table.layout.partition_columns]


def statements(table: HiveTable, database: str, location: str, directories: Iterable[str]) -> Iterator[str]:
    """Yields the DDL of a table. `directories` are paths below the location; without any, Hive looks for them."""
    table_name = ".".join(f"`{part}`" for part in (database, table.name) if part)
    library, reader, writer = STORAGE[table.layout.format]
    lines = [f"CREATE EXTERNAL TABLE IF NOT EXISTS {table_name} ("]
    lines += [",\n".join(f"  `{name}` {kind}" for name, kind in table.columns), ")"]
    if table.partitions:
        lines.append("PARTITIONED BY (" + ", ".join(f"`{name}` {kind}" for name, kind in table.partitions) + ")")
    lines.append(f"ROW FORMAT SERDE {_text(library)}" + _with(" WITH SERDEPROPERTIES", table.parameters))
    lines += [
        f"STORED AS INPUTFORMAT {_text(reader)}",
        f"  OUTPUTFORMAT {_text(writer)}",
        f"LOCATION {_text(location)}",
    ]
    header = {name: value for name, value in table.properties.items() if name != "EXTERNAL"}
    lines += [_with("TBLPROPERTIES", header)] if header else []
    if table.left_out:
        yield f"-- left out, because Hive has no such names: {', '.join(map(repr, table.left_out))}"
    yield "\n".join(lines) + ";"
    for directory in directories if table.partitions else ():
        pairs = zip(table.partitions, partition_values(table, directory), strict=True)
        values = ", ".join(f"`{name}` = {_text(value)}" for (name, _), value in pairs)
        path = directory.removeprefix(names.table_prefix_of(directory))
        yield f"ALTER TABLE {table_name} ADD IF NOT EXISTS PARTITION ({values}) LOCATION {_text(location + path)};"


def repair(table: HiveTable, database: str) -> str:
    """Returns the statement with which Hive looks for partitions."""
    return f"MSCK REPAIR TABLE {'.'.join(f'`{part}`' for part in (database, table.name) if part)};"


def can_repair(layout: Layout) -> bool:
    """True if Hive finds the partitions of a layout by itself."""
    return all("=" in part for part in layout.pattern.split("/") if part)


def _type_of(kind: Type) -> str | None:
    """Returns the type of a column; None if a member of it has a name that no catalog takes."""
    if isinstance(kind, str):
        return {"json": "string", "decimal": "decimal(38,18)"}.get(kind, kind)
    if kind[0] == "array":
        inner = _type_of(kind[1])
        return None if inner is None else f"array<{inner}>"
    members = [(name, _type_of(column)) for name, column in columns(kind[1])]
    if any(member is None or not MEMBER.fullmatch(name) for name, member in members):
        return None
    return "struct<" + ",".join(f"{name.lower()}:{member}" for name, member in members) + ">"


def _type_in_files(kind: str, layout: Layout) -> str:
    if layout.format in (CSV, DELIMITED):
        return "string"
    types = {JSONL: _TYPES_OF_LINES, AVRO: _TYPES_OF_AVRO}.get(layout.format, {})
    type_name = types.get(kind, kind)
    return _TEXT_WITHIN.sub("string", type_name) if layout.format == JSONL else type_name


def _name_in_files(name: str, layout: Layout) -> str:
    if layout.format != AVRO:
        return name
    from spark_ingest.output.avro_files import avro_name  # with fastavro

    return avro_name(name)


def _with(head: str, values: dict[str, str]) -> str:
    return (
        head + " (" + ", ".join(f"{_text(name)} = {_text(value)}" for name, value in values.items()) + ")"
        if values
        else ""
    )


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\t", "\\t").replace("\n", "\\n") + "'"
