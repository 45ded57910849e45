"""The settings of a topic's layout: the format of files, and the directories that divide the rows of its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from spark_ingest.config.setting import TABLE, TEXT, WHOLE, Setting, without_effect
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import (
    CODECS,
    DELIMITED,
    FAIL_ON_MORE,
    HOUR,
    LINES,
    ON_VALUES,
    PARQUET,
    PATTERNS,
    PERIODS,
    POSITIONS,
    TIME_PERIODS,
    UTC_ZONE,
    VALUES_MAX,
    Field,
    Layout,
)
from spark_ingest.output.directories import pattern_problem
from spark_ingest.output.names import DEFAULT_TEMPLATE, template_problem
from spark_ingest.payload.installed import PARTITIONERS
from spark_ingest.payload.member_path import path_of
from spark_ingest.plan import RAW
from spark_ingest.types.json_types import RESERVED, is_decodable
from spark_ingest.types.standard_columns import VALUE

POSITIONS_DEFAULT = 1_000_000
_DELIMITERS = frozenset('"\r\n')
_FIELDS_MAX = 3  # each multiplies the number of files
FILE_BYTES_MAX = 256 << 20  # a task holds 1.4 times as much, and stays below 1 GB


def _zone(value: str) -> str | None:
    try:
        ZoneInfo(value)
    except (OSError, ValueError):
        return f"is {value!r}, not a time zone; write one like 'Europe/Berlin'"
    except KeyError:
        return f"is {value!r}, which is not in the time zones of this machine; write one like 'Europe/Berlin'"
    return None


def _fields(value: Mapping[str, object]) -> str | None:
    if len(value) > _FIELDS_MAX:
        return f"has {len(value)} names; write at most {_FIELDS_MAX}, because each multiplies the files"
    if len({name.lower() for name in value}) < len(value):
        return "has two names that differ only by case; write other names, because readers would see two columns"
    for name, member in value.items():
        if problem := _name_problem(name):
            return problem
        if not isinstance(member, str) or not member or not all(map(is_decodable, path_of(member))):
            return f"{name!r} is not a member; write {name} = 'country' or 'address.country'"
    members = {path_of(str(path))[0].lower() for path in value.values()}
    if repeated_names := [name for name in value if name.lower() in members]:
        return (
            f"{repeated_names[0]!r} is the member's own name; write another one, because readers would see two columns"
        )
    return None


def _name_problem(name: str) -> str | None:
    if not name.isascii() or not name.replace("_", "a").isalnum() or name.startswith("_"):
        return f"{name!r} cannot be the name of a directory; write letters, digits and _"
    return f"{name!r} is taken; write another name" if name.lower() in RESERVED else None


def _text_column(value: str) -> str | None:
    return None if is_decodable(value) else f"is {value!r}; write a name without quotes and backslashes"


def _delimiter(value: str) -> str | None:
    if len(value) != 1 or not value.isascii() or value in _DELIMITERS:
        return f"is {value!r}; write one ASCII character that is neither a quote nor the end of a line"
    return None


_SETTINGS = (
    Setting("format", TEXT, PARQUET, "The format of data files. Iceberg and Delta tables need Parquet.",
            choices=tuple(CODECS)),
    Setting("codec", TEXT, None, "The compression of files: " + "; ".join(
            f"`{form}` {', '.join(f'`{codec}`' for codec in codecs)}" for form, codecs in CODECS.items())
            + ". The first is the default."),
    Setting("output_delimiter", TEXT, "\t", "Separates the fields of files with `format` = `delimited`.",
            check=_delimiter),
    Setting("text_column", TEXT, None, "The column whose values are the lines of files with `format` = `text`; with "
            "`payload` = `raw` it is `_value` by default.", check=_text_column),
    Setting("file_bytes", WHOLE, None, "The size of data files to aim at, where a directory gets that much from a run: "
            "a task then takes as much of the log as a file needs. Without it `task_bytes` bounds files. For Parquet "
            "only; open files are in memory.", minimum=1 << 20, maximum=FILE_BYTES_MAX),
    Setting("file_name", TEXT, DEFAULT_TEMPLATE, "The names of data files, without the extension: letters, digits, "
            "`+ _ - .` and the placeholders of the default. `{partition}`, `{first_offset}` and a last `+{commit}` are "
            "required: without them two files would have one name. A table keeps its template.",
            check=template_problem),
    Setting("partition", TEXT, HOUR, "The period of a directory, by the time of the event; or `positions`: a range of "
            "offsets; or `none`. A longer period has fewer, larger files.", choices=PERIODS),
    Setting("partition_zone", TEXT, UTC_ZONE, "The time zone of the periods of directories.", check=_zone),
    Setting("partition_path", TEXT, None, "The directory of a period, of `%Y`, `%m`, `%d`, `%H` and `%M`: "
            "`hourly/%Y/%m/%d/%H` is Camus's. Without it Hive's form counts, from which readers take columns."),
    Setting("partition_positions", WHOLE, None, f"The offsets of a directory with `partition` = `positions`; without "
            f"it {POSITIONS_DEFAULT:,}.", minimum=1, maximum=1 << 40),
    Setting("partition_fields", TABLE, None, "Directories by the values of members, below those of the period: "
            '`{ region = "country" }` makes `region=DE`. The name must not be that of a member.', check=_fields),
    Setting("partition_values_max", WHOLE, VALUES_MAX, "The combinations of such values in one part of a task (256 MiB "
            "of records). Each is a file, which is encoded in memory.", minimum=1, maximum=100_000),
    Setting("partition_on_more", TEXT, FAIL_ON_MORE, "For more values: hold the topic back, or put the rows of the "
            "rarest ones into `…=__other__`, which a query by value then has to read too.", choices=ON_VALUES),
    Setting("partitioner", TEXT, None, f"An entry point of `{PARTITIONERS}` that computes values of directories, "
            "instead of `partition_fields`."),
    Setting("partitioner_options", TABLE, None, "The options of the partitioner."),
)  # fmt: skip
LAYOUT_SETTINGS = {setting.name: setting for setting in _SETTINGS}
_NEEDS = {
    "text_column": ("format", (LINES,)),
    "file_bytes": ("format", (PARQUET,)),
    "small_files_max": ("format", (PARQUET,)),
    "partition_zone": ("partition", TIME_PERIODS),
    "partition_path": ("partition", TIME_PERIODS),
    "partition_positions": ("partition", (POSITIONS,)),
}


def layout_of(settings: Mapping[str, Any]) -> Layout:
    """Returns the layout of settings, which have their defaults. Raises IngestRefused for a partitioner."""
    period, form = settings["partition"], settings["format"]
    fields = tuple(Field(name, member) for name, member in (settings["partition_fields"] or {}).items())
    options = ""
    if settings["partitioner"]:
        options = msgspec.json.encode(settings["partitioner_options"] or {}, order="sorted").decode()
        fields = tuple(map(Field, _partitioner_names(settings["partitioner"], settings["partitioner_options"] or {})))
    return Layout(
        form,
        settings["codec"] or next(iter(CODECS[form])),
        period,
        settings["partition_zone"] if period in TIME_PERIODS else UTC_ZONE,
        settings["partition_path"] if settings["partition_path"] not in (None, PATTERNS[period]) else "",
        (settings["partition_positions"] or POSITIONS_DEFAULT) if period == POSITIONS else 0,
        fields,
        settings["partitioner"] or "",
        options,
        settings["partition_values_max"],
        settings["partition_on_more"],
        settings["output_delimiter"] if form == DELIMITED else "",
        settings["file_bytes"] or 0,
        (settings["text_column"] or VALUE.name) if form == LINES else "",
        settings["file_name"] if settings["file_name"] != DEFAULT_TEMPLATE else "",
    )


def layout_problems(settings: Mapping[str, Any], given_settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the names of settings of a layout that do not fit together, each with what to do.

    `settings` have their defaults, `given_settings` are those of the section.
    """
    wrong: list[tuple[str, str]] = []
    period, codecs = settings["partition"], CODECS[settings["format"]]
    if (settings["codec"] or next(iter(codecs))) not in codecs:
        wrong.append(("codec", f"is {settings['codec']!r}; write one of: {', '.join(codecs)}"))
    if settings["format"] == LINES and settings["text_column"] is None and settings["payload"] != RAW:
        wrong.append(("format", "is 'text' without text_column; write the column whose values are the lines"))
    wrong += without_effect(given_settings, settings, _NEEDS)
    path = settings["partition_path"]
    if path is not None and period in TIME_PERIODS and (problem := pattern_problem(path, period)):
        wrong.append(("partition_path", problem))
    if settings["partitioner"] and settings["partition_fields"]:
        wrong.append(("partitioner", "cannot be beside partition_fields; remove one"))
    taken = [part.partition("=")[0].lower() for part in (path or PATTERNS[period]).split("/") if "=" in part]
    taken += ["offset"] if period == POSITIONS else []
    directories = {*taken, *(name.lower() for name in settings["partition_fields"] or {})}
    if twice := [name for name in settings["columns"] or {} if name.lower() in directories]:
        wrong.append(("columns", f"{twice[0]!r} is a directory, which is a column for readers; remove it"))
    if twice := [name for name in settings["partition_fields"] or {} if name.lower() in taken]:
        wrong.append(("partition_fields", f"{twice[0]!r} is a directory of the period; write another name"))
    return wrong


def _partitioner_names(name: str, options: Mapping[str, Any]) -> list[str]:
    from spark_ingest.output.splitting import partitioner_of  # with PyArrow

    names = list(partitioner_of(name, options).names)
    if problem := next(filter(None, map(_name_problem, names)), None):
        raise IngestRefused(f"partitioner {name}: {problem}")
    return names
