"""The options of a read of the data source. Pure.

Spark passes options as text, with names in any case. An error names the option, because Spark shows it within a long
stack trace.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from engine.tiering.store.store import url_of
from spark_ingest.decode.event_time import parse
from spark_ingest.errors import IngestRefused
from spark_ingest.frames.record_array import COLUMNS
from spark_ingest.frames.typed_schema import TYPED_COLUMNS

PARTITION_BYTES = 32 << 20  # some seconds of one core
FAIL, SKIP = "fail", "skip"

_OPTIONS = {
    *("store", "topic", "topics", "cluster", "columns", "partitionbytes", "undecodable"),
    *("startoffset", "endoffset", "starttime", "endtime", "partitions"),
    *("schema", "output", "job"),
}
_TABLE_OPTION = "option."  # CREATE TABLE gives each option with and without it
# CREATE TABLE adds these by itself. LOCATION gives a path, which has no meaning here.
_OF_SPARK = {"provider", "location", "path", "owner", "external", "is_managed_location", "comment", "collation"}


@dataclass(frozen=True, slots=True)
class Offsets:
    """One bound of the offsets to read: of each named partition, and of all others. None is the log's own bound."""

    of_others: int | None = None
    by_partition: Mapping[int, int] = field(default_factory=dict)

    def of(self, partition: int) -> int | None:
        return self.by_partition.get(partition, self.of_others)

    def raised(self, offset: int) -> Offsets:
        """Returns these bounds, none below the offset."""
        return Offsets(
            offset if self.of_others is None else max(self.of_others, offset),
            {partition: max(bound, offset) for partition, bound in self.by_partition.items()},
        )

    def lowered(self, offset: int) -> Offsets:
        """Returns these bounds, none above the offset."""
        return Offsets(
            offset if self.of_others is None else min(self.of_others, offset),
            {partition: min(bound, offset) for partition, bound in self.by_partition.items()},
        )


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read. End offsets and end times are exclusive.

    `columns` are those of the record. `ddl_members` or `output` make a typed read; a schema that is given to Spark
    itself does so too, which these options do not have.
    """

    store: str
    topics: str
    cluster: str | None
    starts: Offsets
    ends: Offsets
    partitions: frozenset[int] | None
    start_ms: int | None
    end_ms: int | None
    columns: tuple[str, ...]
    partition_bytes: int
    undecodable: str
    ddl_members: str | None = None
    output: str | None = None
    job: str = "default"
    topic: str | None = None

    @property
    def is_typed(self) -> bool:
        return self.ddl_members is not None or self.output is not None

    @property
    def ddl(self) -> str:
        """The columns of a raw read."""
        return ", ".join(f"{name} {COLUMNS[name].ddl}" for name in self.columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns of a raw read."""
        return pa.schema([pa.field(name, COLUMNS[name].kind) for name in self.columns])

    def has_time(self, timestamp_ms: int) -> bool:
        return (self.start_ms is None or timestamp_ms >= self.start_ms) and (
            self.end_ms is None or timestamp_ms < self.end_ms
        )


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Parses the options that Spark passes. Raises IngestRefused."""
    given = given_options(options)
    unknown = sorted(set(given) - _OPTIONS)
    if unknown:
        raise IngestRefused(f"unknown options {unknown}", hint=f"there are: {', '.join(sorted(_OPTIONS))}")
    if "store" not in given or ("topic" in given) == ("topics" in given):
        raise IngestRefused("give the options 'store' and one of 'topic' and 'topics' (a regular expression)")
    if "output" in given and ("schema" in given or "topic" not in given):
        raise IngestRefused("'output' takes the schema of one table: give 'topic' with it, and no 'schema'")
    if "job" in given and "output" not in given:
        raise IngestRefused("'job' needs 'output', where the job writes its tables")
    is_typed = "schema" in given or "output" in given
    return ReadOptions(
        store=_url(given["store"]),
        topics=re.escape(given["topic"]) if "topic" in given else _pattern(given["topics"]),
        cluster=given.get("cluster"),
        starts=_offsets(given, "startoffset", "earliest"),
        ends=_offsets(given, "endoffset", "latest"),
        partitions=_partitions(given.get("partitions")),
        start_ms=_time(given, "starttime"),
        end_ms=_time(given, "endtime"),
        columns=_columns(given.get("columns"), TYPED_COLUMNS if is_typed else COLUMNS, is_typed),
        partition_bytes=integer(given.get("partitionbytes", str(PARTITION_BYTES)), "partitionBytes", 1),
        undecodable=one_of(given.get("undecodable", FAIL), "undecodable", (FAIL, SKIP)),
        ddl_members=given.get("schema"),
        output=_url(given["output"]) if "output" in given else None,
        job=given.get("job", "default"),
        topic=given.get("topic"),
    )


def given_options(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options in lower case, without those that Spark adds to a table of its catalog."""
    given = {name.lower().removeprefix(_TABLE_OPTION): value for name, value in options.items()}
    return {name: value for name, value in given.items() if name not in _OF_SPARK}


def _url(text: str) -> str:
    """Takes absolute paths as the commands do. Relative ones would depend on the directory of each executor."""
    return url_of(text) if text.startswith("/") else text


def _pattern(text: str) -> str:
    try:
        return re.compile(text).pattern
    except re.error as error:
        raise IngestRefused(f"topics={text!r} is not a regular expression: {error}") from error


def _offsets(given: Mapping[str, str], name: str, nothing: str) -> Offsets:
    """Returns the bound of all partitions, or that of each: `100`, or `{"0": 100, "3": 20}`."""
    text = given.get(name, nothing)
    if not text.lstrip().startswith("{"):
        return Offsets(None if text == nothing else integer(text, name, 0))
    try:
        offsets = {
            integer(number, name, 0): integer(str(offset), name, 0) for number, offset in json.loads(text).items()
        }
    except json.JSONDecodeError as error:
        raise IngestRefused(f'{name}={text!r} is not JSON like {{"0": 100}}: {error}') from error
    return Offsets(None, offsets)


def _partitions(text: str | None) -> frozenset[int] | None:
    """Returns the numbers of a list such as `0,4-7`."""
    if text is None:
        return None
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        start = integer(first, "partitions", 0)
        numbers.update(range(start, (integer(last, "partitions", start) if dash else start) + 1))
    return frozenset(numbers)


def integer(text: str, name: str, least: int) -> int:
    """Parses an option. Raises IngestRefused."""
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise IngestRefused(f"{name}={text!r} is not an integer of at least {least}")
    return int(text)


def _time(given: Mapping[str, str], name: str) -> int | None:
    """Returns milliseconds, rounded up."""
    text = given.get(name)
    time_ms = None if text is None else parse(text)
    if text is not None and time_ms is None:
        raise IngestRefused(f"{name}={text!r} is not a time", hint="write 2026-11-20T05:00:00Z or milliseconds")
    return None if time_ms is None else -(-time_ms // 1000)


def _columns(text: str | None, columns: Mapping[str, object], is_typed: bool) -> tuple[str, ...]:
    if text is None:
        return () if is_typed else tuple(columns)
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in columns]
    if unknown or len(set(names)) != len(names):
        raise IngestRefused(f"columns={text!r} names {unknown or 'one twice'}", hint=f"there are: {', '.join(columns)}")
    return names


def one_of(text: str, name: str, allowed: tuple[str, ...]) -> str:
    """Returns an option with one of some values. Raises IngestRefused."""
    if text not in allowed:
        raise IngestRefused(f"{name}={text!r} is not one of {', '.join(allowed)}")
    return text
