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

A table may have another template of names. Two files of a directory still differ in partition and first offset, or in
the plan. A name has no random part: a task that runs twice writes one object. This module reads only two things of a
name: it has an offset of 20 digits, and it ends with the numbers of the plan and the rewrite. A long topic is cut
there, with a digest; its directories have the whole name.

A table's root contains data files and markers only: some readers read every file there without a leading `_`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from engine.format.paths import digits
from spark_ingest.layout import DEFAULT, Layout
from spark_ingest.output.directories import NO_VALUE
from spark_ingest.source.slices import Range

JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

DEFAULT_TEMPLATE = "{topic}+{partition}+{first_offset}-{last_offset}+{commit}"
PLACEHOLDERS = ("topic", "partition", "first_offset", "last_offset", "commit")
TEMPLATE_CHARS_MAX = 120  # names have at most 255 bytes, and a topic takes most of them
TOPIC_CHARS_MAX = 128  # of a topic within a name, so that numbers and the rest of a template have room

_ARCHIVE = re.compile(r"(\d{20})-(\d{20})\.json")
_NUMBERED = re.compile(r"(\d{20})\.json")
_DATA_FILE = re.compile(r".*(?<!\d)\d{20}(?!\d).*\+(?P<plan>\d+)(?:\+(?P<rewrite>\d+)\.\d+)?\.[a-z.]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEEDED = ("partition", "first_offset", "commit")
_END = "+{commit}"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_TOUCHING = re.compile(r"\}\{|\}[0-9]|[0-9]\{")
_LITERAL = re.compile(r"[A-Za-z0-9+._-]*")


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


def data_file_name(topic: str, ranges: Sequence[Range], number: int, layout: Layout = DEFAULT) -> str:
    """Returns the name of a file of a plan. Dead letters have the default."""
    first, last = ranges[0], ranges[-1]
    ends = (first.partition, first.start), (last.partition, last.end - 1)
    return _name(topic, *ends, number, len(ranges) > 1, layout.file_name) + layout.extension


def rewritten_file_name(
    topic: str, first: tuple[int, int], last: tuple[int, int], number: int, rewrite: int, group: int, template: str = ""
) -> str:
    """Returns the name of the file that a group of a rewrite makes. `first` and `last` are partitions and offsets."""
    return f"{_name(topic, first, last, number, first[0] != last[0], template)}+{rewrite}.{group}.parquet"


def _name(
    topic: str, first: tuple[int, int], last: tuple[int, int], number: int, has_several: bool, template: str
) -> str:
    values = {
        "topic": _short(table_of(topic)),
        "partition": f"{first[0]}-{last[0]}" if has_several else str(first[0]),
        "first_offset": digits(first[1]),
        "last_offset": digits(last[1]),
        "commit": str(number),
    }
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template or DEFAULT_TEMPLATE)


def _short(table: str) -> str:
    """Returns the name of a table within the name of a file: of a long one, its beginning and a digest of all of it."""
    if len(table) <= TOPIC_CHARS_MAX:
        return table
    return f"{table[: TOPIC_CHARS_MAX - 17]}+{hashlib.sha256(table.encode()).hexdigest()[:16]}"


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
    return int(match["plan"]) if match else None


def rewrite_of(key: str) -> int | None:
    """Returns the number of the rewrite that made a file; None for a file of a plan, or any other name."""
    match = _DATA_FILE.fullmatch(key.rpartition("/")[2])
    return int(match["rewrite"]) if match and match["rewrite"] else None


def table_prefix_of(key: str) -> str:
    """Returns the prefix of the table, or of the dead letters, that a file is of."""
    return "/".join(key.split("/", 2)[:2]) + "/"


def topic_of(key: str) -> str:
    """Returns the topic of a data file or a file of dead letters."""
    return key.split("/", 2)[1].removeprefix("+")


def template_problem(template: str) -> str | None:
    """Returns why files of a template could have one name, or a name that readers ignore; None if they cannot."""
    used = _PLACEHOLDER.findall(template)
    if unknown := [placeholder for placeholder in used if placeholder not in PLACEHOLDERS]:
        placeholders = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
        return f"has {{{unknown[0]}}}; write {placeholders}: a task that runs twice must write the same file"
    if absent := [placeholder for placeholder in _NEEDED if placeholder not in used]:
        return f"does not have {{{absent[0]}}}, so two files could have one name; add it"
    if len(set(used)) < len(used):
        return "has a placeholder twice; write each one once"
    if not template.endswith(_END):
        return f"does not end with {_END}; write it last, because upkeep reads the commit there"
    if not _LITERAL.fullmatch(_PLACEHOLDER.sub("", template)):
        return "has other characters than letters, digits and + _ - . beside placeholders; remove them"
    if _TOUCHING.search(template):
        return "has a number beside a placeholder, or two placeholders together; write a sign between them"
    if template.startswith(("_", ".")):
        return f"begins with {template[0]!r}; begin it with a letter, because readers ignore such files"
    if len(template) > TEMPLATE_CHARS_MAX:
        return f"has {len(template)} characters; write at most {TEMPLATE_CHARS_MAX}"
    return None
