"""The layout of a table: the format and the codec of its files, and how its directories divide the rows. Pure.

All files of a table have one format and one division, because readers list directories of one depth and files of one
kind. The codec may change, and so may the bound on values. output/directories.py has the names of directories.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PARQUET, ORC, JSONL, CSV, DELIMITED, AVRO = "parquet", "orc", "jsonl", "csv", "delimited", "avro"
LINES = "text"
HOUR, DAY, WEEK, MONTH, YEAR, NONE, POSITIONS = "hour", "day", "week", "month", "year", "none", "positions"
MINUTES = {f"{minutes}min": minutes for minutes in (5, 10, 15, 20, 30)}  # divisors of an hour
PERIODS = (*MINUTES, HOUR, DAY, WEEK, MONTH, YEAR, NONE, POSITIONS)
TIME_PERIODS = (*MINUTES, HOUR, DAY, WEEK, MONTH, YEAR)
# The directories of each period; %Y %m %d %H %M are those of its start.
PATTERNS = {
    **dict.fromkeys(MINUTES, "dt=%Y-%m-%d/hr=%H/min=%M"),
    HOUR: "dt=%Y-%m-%d/hr=%H",
    DAY: "dt=%Y-%m-%d",
    WEEK: "week=%Y-%m-%d",
    MONTH: "month=%Y-%m",
    YEAR: "year=%Y",
    NONE: "",
    POSITIONS: "",
}
OFFSET = "offset"  # the name of directories of positions
UTC_ZONE = "UTC"
# The codecs of each format, and the library's name of each; the first is the default.
CODECS = {
    PARQUET: {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4": "lz4", "none": "none"},
    ORC: {"zstd": "zstd", "snappy": "snappy", "zlib": "zlib", "lz4": "lz4", "none": "uncompressed"},
    JSONL: {"zstd": "zstd", "gzip": "gzip", "none": "none"},
    CSV: {"zstd": "zstd", "gzip": "gzip", "none": "none"},
    DELIMITED: {"zstd": "zstd", "gzip": "gzip", "none": "none"},
    LINES: {"zstd": "zstd", "gzip": "gzip", "none": "none"},
    AVRO: {"deflate": "deflate", "snappy": "snappy", "bzip2": "bzip2", "none": "null"},
}
STREAMS = (JSONL, CSV, DELIMITED, LINES)
LINE_COLUMN = "value"  # Spark's name for the column of a text file
STREAM_CODECS = {"zstd": ".zst", "gzip": ".gz"}  # of lines: the file's name has them
FAIL_ON_MORE, OTHER = "fail", "other"
ON_VALUES = (FAIL_ON_MORE, OTHER)
VALUES_MAX = 1000
_NAMED_PART = re.compile(r"([^/=%]+)=([^/]*)")


class Field(NamedTuple):
    """Directories `name=value`; the value is that of a column or a member of it, or of the partitioner without one."""

    name: str
    member: str = ""


class Layout(NamedTuple):
    """`codec` is a key of CODECS. `directories` is a pattern; without one that of the period counts.

    `positions` are the offsets of a directory with the period POSITIONS. `partitioner` is an entry point that gives
    the values of `fields`, `options` the JSON of its options. `column` is that of the lines of LINES. `file_bytes` is
    the size that files aim at; 0 for none. `file_name` is the template of their names; empty for the usual one.
    """

    format: str = PARQUET
    codec: str = "zstd"
    period: str = HOUR
    zone: str = UTC_ZONE
    directories: str = ""
    positions: int = 0
    fields: tuple[Field, ...] = ()
    partitioner: str = ""
    options: str = ""
    values_max: int = VALUES_MAX
    on_values: str = FAIL_ON_MORE
    delimiter: str = ""
    file_bytes: int = 0
    column: str = ""
    file_name: str = ""

    @property
    def extension(self) -> str:
        """Returns the end of a file's name."""
        return f".{self.format}" + (STREAM_CODECS.get(self.codec, "") if self.format in STREAMS else "")

    @property
    def pattern(self) -> str:
        return self.directories or PATTERNS[self.period]

    @property
    def fixed(self) -> str:
        """Returns the part that a table keeps, as text."""
        parts = [f"{self.format} by {self.period}"]
        parts += [f"of {self.positions}"] if self.positions else []
        parts += [f"in {self.zone}"] if self.zone != UTC_ZONE else []
        parts += [f"as {self.directories}"] if self.directories else []
        parts += [f"and {field.name}" + (f" ({field.member})" if field.member else "") for field in self.fields]
        parts += [f"of {self.partitioner} {self.options}".rstrip()] if self.partitioner else []
        parts += [f"with {self.delimiter!r}"] if self.delimiter else []
        parts += [f"of the column {self.column}"] if self.column else []
        parts += [f"named {self.file_name}"] if self.file_name else []
        return " ".join(parts)

    @property
    def partition_columns(self) -> dict[str, str]:
        """Returns the columns that readers take from directories, in their order, with Spark's types."""
        columns = {OFFSET: "BIGINT"} if self.period == POSITIONS else {}
        for name, value in _NAMED_PART.findall(self.pattern):
            columns[name] = "DATE" if value == "%Y-%m-%d" else "INT" if re.fullmatch("%.", value) else "STRING"
        return columns | {field.name: "STRING" for field in self.fields}


DEFAULT = Layout()


def layout_of_key(key: str) -> Layout:
    """Returns the format and codec that the name of a data file shows; the codec of one that names none is the
    default. The period is right for tables by hour or day in UTC only (owners.py has the others).
    """
    name = key.rpartition("/")[2]
    period = HOUR if "/hr=" in key else DAY
    for form in CODECS:
        for codec, end in (*STREAM_CODECS.items(), ("none" if form in STREAMS else next(iter(CODECS[form])), "")):
            if name.endswith(f".{form}{end}"):
                return Layout(form, codec, period)
    return Layout(PARQUET, "zstd", period)
