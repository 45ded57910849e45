"""Builds and parses every key that ingestion writes. Pure; the counterpart of engine/format/paths.py for the output.

    _ingest/<job>/plans/<20 digits>.json       the plan of a commit, created once
    _ingest/<job>/commits/<20 digits>.json     the commit, created once
    _ingest/<job>/archives/<20 digits>-<20 digits>.json    the commits from the first to the last number, created once
    _ingest/<job>/retained/<20 digits>.json    which days of tables are retired, replaced by the next number
    _ingest/<job>/manifests.json               what discovery remembers of the source store; may be removed at any time
    _ingest/<job>/rewrites/plans/<20 digits>.json      which files one rewrite replaces, created once
    _ingest/<job>/rewrites/commits/<20 digits>.json    its files, created once
    _ingest/<job>/rewrites/folded/<20 digits>.json     the effect of all rewrites up to this one
    _ingest/<job>/published.json               exists once the job has added files to Iceberg tables
    _ingest/<job>/schemas/<topic>/<id>.json    the columns of a table, with Spark's DDL
    _ingest/_owners/<table>.json               the job that writes a table
    tables/<table>/dt=2026-11-20/hr=05/<table>+<partition>+<first>-<last>+<number>.parquet    or another layout's end,
                                                                     and its directories (directories.py)
    dead_letters/<table>/dt=2026-11-20/<table>+<partition>+<first>-<last>+<number>.parquet
    .../<table>+<partition>+<first>-<last>+<number>+<rewrite>.<group>.parquet    replaces files of its directory
    tables/<table>/dt=2026-11-20/hr=05/_SUCCESS    the hour is complete
    tables/<table>/_delta_log/...                  the log of a Delta table, which deltalake writes

`first` and `last` are the bounds of the task, so a task uses the same file name in each hour. The file name of a task
of several partitions has its two ends: `<table>+0-3+...` is from `first` in partition 0 to `last` in partition 3.
`number` is the number of the plan; of a rewritten file, the highest of those that it replaces. Reruns, abandoned
plans and recreated topics therefore never reuse a name.

A table's root contains data files and markers only: some readers read every file there without a leading `_`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from engine.format.paths import digits
from spark_ingest.output.directories import NO_VALUE
from spark_ingest.source.slices import Range

JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_ARCHIVE = re.compile(r"(\d{20})-(\d{20})\.json")
_NUMBERED = re.compile(r"(\d{20})\.json")
_DATA_FILE = re.compile(r"(\+?[A-Za-z0-9._-]+)\+(\d+(?:-\d+)?)\+(\d{20})-(\d{20})\+(\d+)(?:\+(\d+)\.\d+)?\.[a-z.]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plans_prefix(job: str) -> str:
    return f"_ingest/{job}/plans/"


def plan_key(job: str, number: int) -> str:
    return f"{plans_prefix(job)}{digits(number)}.json"


def commits_prefix(job: str) -> str:
    return f"_ingest/{job}/commits/"


def commit_key(job: str, number: int) -> str:
    return f"{commits_prefix(job)}{digits(number)}.json"


def archives_prefix(job: str) -> str:
    return f"_ingest/{job}/archives/"


def archive_key(job: str, first: int, last: int) -> str:
    return f"{archives_prefix(job)}{digits(first)}-{digits(last)}.json"


def published_key(job: str) -> str:
    return f"_ingest/{job}/published.json"


def known_manifests_key(job: str) -> str:
    return f"_ingest/{job}/manifests.json"


def retained_prefix(job: str) -> str:
    return f"_ingest/{job}/retained/"


def retained_key(job: str, number: int) -> str:
    return f"{retained_prefix(job)}{digits(number)}.json"


def rewrite_plan_key(job: str, number: int) -> str:
    return f"{rewrite_plans_prefix(job)}{digits(number)}.json"


def rewrite_plans_prefix(job: str) -> str:
    return f"_ingest/{job}/rewrites/plans/"


def rewrite_commits_prefix(job: str) -> str:
    return f"_ingest/{job}/rewrites/commits/"


def rewrite_commit_key(job: str, number: int) -> str:
    return f"{rewrite_commits_prefix(job)}{digits(number)}.json"


def folded_rewrites_prefix(job: str) -> str:
    return f"_ingest/{job}/rewrites/folded/"


def folded_rewrites_key(job: str, number: int) -> str:
    return f"{folded_rewrites_prefix(job)}{digits(number)}.json"


def bounds_of(key: str) -> tuple[int, int] | None:
    """Returns the first and the last commit of an archive; None for any other key."""
    match = _ARCHIVE.fullmatch(key.rpartition("/")[2])
    return (int(match.group(1)), int(match.group(2))) if match else None


def number_of(key: str) -> int | None:
    """Returns the number of a plan, a commit or a state of retention; None for any other key."""
    match = _NUMBERED.fullmatch(key.rpartition("/")[2])
    return int(match.group(1)) if match else None


def schema_key(job: str, topic: str, schema_id: str) -> str:
    return f"_ingest/{job}/schemas/{table_of(topic)}/{schema_id}.json"


def owner_key(topic: str) -> str:
    return f"_ingest/_owners/{table_of(topic)}.json"


def table_of(topic: str) -> str:
    """Returns the table's name: the topic, with a `+` before a leading `_` or `.`, because Spark ignores such files."""
    return f"+{topic}" if topic.startswith(("_", ".")) else topic


def table_prefix(topic: str) -> str:
    return f"tables/{table_of(topic)}/"


def dead_letters_prefix(topic: str) -> str:
    return f"dead_letters/{table_of(topic)}/"


def data_file_name(topic: str, ranges: Sequence[Range], number: int, extension: str = ".parquet") -> str:
    first, last = ranges[0], ranges[-1]
    partitions = f"{first.partition}-{last.partition}" if len(ranges) > 1 else str(first.partition)
    return f"{table_of(topic)}+{partitions}+{digits(first.start)}-{digits(last.end - 1)}+{number}{extension}"


def rewritten_file_name(
    topic: str, first: tuple[int, int], last: tuple[int, int], number: int, rewrite: int, group: int
) -> str:
    """Returns the name of the file that a group of a rewrite makes. `first` and `last` are partitions and offsets."""
    partitions = f"{first[0]}-{last[0]}" if first[0] != last[0] else str(first[0])
    bounds = f"{digits(first[1])}-{digits(last[1])}"
    return f"{table_of(topic)}+{partitions}+{bounds}+{number}+{rewrite}.{group}.parquet"


def marker_key(directory: str) -> str:
    """Returns the key of the object that says that an hour is complete."""
    return f"{directory}_SUCCESS"


def is_marker(key: str) -> bool:
    return key.endswith("/_SUCCESS")


def is_of_delta(key: str) -> bool:
    """Returns whether an object is of the log of a Delta table, in the directory of that table."""
    return key.startswith("tables/") and "/_delta_log/" in key


def day_directory(timestamp_ms: int | None) -> str:
    """Returns the directory of the day of a record's timestamp; None gives Hive's null partition."""
    if timestamp_ms is None:
        return f"dt={NO_VALUE}/"
    return f"dt={(_EPOCH + timedelta(milliseconds=timestamp_ms)).date()}/"


def plan_number_of(key: str) -> int | None:
    """Returns the plan number in a data file's name; None for any other name."""
    match = _DATA_FILE.fullmatch(key.rpartition("/")[2])
    return int(match.group(5)) if match else None


def rewrite_of(key: str) -> int | None:
    """Returns the number of the rewrite that made a file; None for a file of a plan, or any other name."""
    match = _DATA_FILE.fullmatch(key.rpartition("/")[2])
    return int(match.group(6)) if match and match.group(6) else None


def table_prefix_of(key: str) -> str:
    """Returns the prefix of the table, or of the dead letters, that a file is of."""
    return "/".join(key.split("/", 2)[:2]) + "/"


def topic_of(key: str) -> str:
    """Returns the topic of a data file or a file of dead letters."""
    return key.split("/", 2)[1].removeprefix("+")
