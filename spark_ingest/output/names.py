"""Every key that ingestion writes, and nothing else. Pure; the counterpart of engine/format/paths.py for the output.

    _ingest/<job>/plans/<20 digits>.json       what a run is going to do, created once
    _ingest/<job>/commits/<20 digits>.json     that it was done: the only evidence of it
    _ingest/<job>/schemas/<topic>/<id>.json    a table's columns, with Spark's DDL
    _ingest/_owners/<table>.json               which job writes a table
    tables/<table>/dt=2026-11-20/hr=05/<table>+<partition>+<first>-<last>+<number>.parquet
    dead_letters/<table>/dt=2026-11-20/<table>+<partition>+<first>-<last>+<number>.parquet

`first` and `last` are the bounds of the task, so that the same name stands in every hour that the task met. A task of
several partitions is a run in the order of (partition, offset), and is named after its two ends: `<table>+0-3+...` is
from `first` in partition 0 to `last` in partition 3. `number` is that of the plan. A name is thus never used for two
contents, whatever is rerun, abandoned or recreated.

Nothing but data lies below a table's root: some readers take every file there for data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from engine.format.paths import digits
from spark_ingest.source.cut import Range

JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NO_DAY = "__HIVE_DEFAULT_PARTITION__"  # Hive's and Spark's name for null

_NUMBERED = re.compile(r"(\d{20})\.json")
_DATA_FILE = re.compile(r"(\+?[A-Za-z0-9._-]+)\+(\d+(?:-\d+)?)\+(\d{20})-(\d{20})\+(\d+)\.parquet")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plans_prefix(job: str) -> str:
    return f"_ingest/{job}/plans/"


def plan_key(job: str, number: int) -> str:
    return f"{plans_prefix(job)}{digits(number)}.json"


def commits_prefix(job: str) -> str:
    return f"_ingest/{job}/commits/"


def commit_key(job: str, number: int) -> str:
    return f"{commits_prefix(job)}{digits(number)}.json"


def number_of(key: str) -> int | None:
    """The number of a plan or commit; None for any other key."""
    match = _NUMBERED.fullmatch(key.rpartition("/")[2])
    return int(match.group(1)) if match else None


def schema_key(job: str, topic: str, schema_id: str) -> str:
    return f"_ingest/{job}/schemas/{table_of(topic)}/{schema_id}.json"


def owner_key(topic: str) -> str:
    return f"_ingest/_owners/{table_of(topic)}.json"


def table_of(topic: str) -> str:
    """The topic's name; a leading `_` or `.`, which makes Spark overlook files, is put behind a `+`."""
    return f"+{topic}" if topic.startswith(("_", ".")) else topic


def table_prefix(topic: str) -> str:
    return f"tables/{table_of(topic)}/"


def dead_letters_prefix(topic: str) -> str:
    return f"dead_letters/{table_of(topic)}/"


def data_file_name(topic: str, ranges: Sequence[Range], number: int) -> str:
    first, last = ranges[0], ranges[-1]
    partitions = f"{first.partition}-{last.partition}" if len(ranges) > 1 else str(first.partition)
    return f"{table_of(topic)}+{partitions}+{digits(first.start)}-{digits(last.end - 1)}+{number}.parquet"


def hour_directory(hour: int) -> str:
    """Hive partitions of an hour counted from 1970, UTC."""
    moment = _EPOCH + timedelta(hours=hour)
    return f"dt={moment.date()}/hr={moment:%H}/"


def day_directory(timestamp_ms: int | None) -> str:
    """Of a record's own timestamp; one that is absent has no day."""
    if timestamp_ms is None:
        return f"dt={NO_DAY}/"
    return f"dt={(_EPOCH + timedelta(milliseconds=timestamp_ms)).date()}/"


def plan_number_of(key: str) -> int | None:
    """The plan that a data file's name carries; None when the name is none of ours."""
    match = _DATA_FILE.fullmatch(key.rpartition("/")[2])
    return int(match.group(5)) if match else None
