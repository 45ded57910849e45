"""The options and the columns of the data source. Pure.

Spark passes options as text, with names in any case. An error names the option, because Spark shows it within a long
stack trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from spark_ingest.decode.blocks import TIMESTAMP
from spark_ingest.decode.event_time import parse
from spark_ingest.errors import IngestRefused

PARTITION_BYTES = 32 << 20  # some seconds of one core
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])))
FAIL, SKIP = "fail", "skip"


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
_OPTIONS = {
    *("store", "topic", "topics", "cluster", "columns", "partitionbytes", "undecodable"),
    *("startoffset", "endoffset", "starttime", "endtime"),
}
_TABLE_OPTION = "option."  # CREATE TABLE gives each option with and without it
# CREATE TABLE adds these by itself. LOCATION gives a path, which has no meaning here.
_OF_SPARK = {"provider", "location", "path", "owner", "external", "is_managed_location", "comment", "collation"}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read. End offsets and end times are exclusive."""

    store: str
    topics: str
    cluster: str | None
    start_offset: int
    end_offset: int | None
    start_ms: int | None
    end_ms: int | None
    columns: tuple[str, ...]
    partition_bytes: int
    undecodable: str

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {COLUMNS[name].ddl}" for name in self.columns)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, COLUMNS[name].kind) for name in self.columns])

    def has_time(self, timestamp_ms: int) -> bool:
        return (self.start_ms is None or timestamp_ms >= self.start_ms) and (
            self.end_ms is None or timestamp_ms < self.end_ms
        )


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Parses the options that Spark passes. Raises IngestRefused."""
    given = _given(options)
    unknown = sorted(set(given) - _OPTIONS)
    if unknown:
        raise IngestRefused(f"unknown options {unknown}", hint=f"there are: {', '.join(sorted(_OPTIONS))}")
    if "store" not in given or ("topic" in given) == ("topics" in given):
        raise IngestRefused("give the options 'store' and one of 'topic' and 'topics' (a regular expression)")
    return ReadOptions(
        store=given["store"],
        topics=re.escape(given["topic"]) if "topic" in given else _pattern(given["topics"]),
        cluster=given.get("cluster"),
        start_offset=_offset(given, "startoffset", "earliest") or 0,
        end_offset=_offset(given, "endoffset", "latest"),
        start_ms=_time(given, "starttime"),
        end_ms=_time(given, "endtime"),
        columns=_columns(given.get("columns")),
        partition_bytes=_integer(given.get("partitionbytes", str(PARTITION_BYTES)), "partitionBytes", 1),
        undecodable=_one_of(given.get("undecodable", FAIL), "undecodable", (FAIL, SKIP)),
    )


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options in lower case, without those that Spark adds to a table of its catalog."""
    given = {name.lower().removeprefix(_TABLE_OPTION): value for name, value in options.items()}
    return {name: value for name, value in given.items() if name not in _OF_SPARK}


def _pattern(text: str) -> str:
    try:
        return re.compile(text).pattern
    except re.error as error:
        raise IngestRefused(f"topics={text!r} is not a regular expression: {error}") from error


def _offset(given: Mapping[str, str], name: str, nothing: str) -> int | None:
    text = given.get(name, nothing)
    return None if text == nothing else _integer(text, name, 0)


def _integer(text: str, name: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise IngestRefused(f"{name}={text!r} is not an integer of at least {least}")
    return int(text)


def _time(given: Mapping[str, str], name: str) -> int | None:
    """Returns milliseconds, rounded up."""
    text = given.get(name)
    found = None if text is None else parse(text)
    if text is not None and found is None:
        raise IngestRefused(f"{name}={text!r} is not a time", hint="write 2026-11-20T05:00:00Z or milliseconds")
    return None if found is None else -(-found // 1000)


def _columns(text: str | None) -> tuple[str, ...]:
    names = tuple(COLUMNS) if text is None else tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or len(set(names)) != len(names):
        raise IngestRefused(f"columns={text!r} names {unknown or 'one twice'}", hint=f"there are: {', '.join(COLUMNS)}")
    return names


def _one_of(text: str, name: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise IngestRefused(f"{name}={text!r} is not one of {', '.join(allowed)}")
    return text
