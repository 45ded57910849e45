"""The layout of a table: the format and the codec of its files, and the period of a directory. Pure.

All files of a table have one format and one period, because readers list directories of one depth and files of one
kind. The codec may change.
"""

from __future__ import annotations

from typing import NamedTuple

PARQUET, ORC, JSONL, CSV = "parquet", "orc", "jsonl", "csv"
HOUR, DAY = "hour", "day"
PERIODS = (HOUR, DAY)
PERIOD_US = {HOUR: 3_600_000_000, DAY: 86_400_000_000}
# The codecs of each format, and the library's name of each; the first is the default.
CODECS = {
    PARQUET: {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4": "lz4", "none": "none"},
    ORC: {"zstd": "zstd", "snappy": "snappy", "zlib": "zlib", "lz4": "lz4", "none": "uncompressed"},
    JSONL: {"zstd": "zstd", "gzip": "gzip", "none": "none"},
    CSV: {"zstd": "zstd", "gzip": "gzip", "none": "none"},
}
STREAM_CODECS = {"zstd": ".zst", "gzip": ".gz"}  # of lines: the file's name has them


class Layout(NamedTuple):
    """`codec` is a key of CODECS."""

    format: str = PARQUET
    codec: str = "zstd"
    period: str = HOUR

    @property
    def extension(self) -> str:
        """Returns the end of a file's name."""
        is_stream = self.format in (JSONL, CSV)
        return f".{self.format}" + (STREAM_CODECS.get(self.codec, "") if is_stream else "")

    @property
    def fixed(self) -> str:
        """Returns the part that a table keeps, as text."""
        return f"{self.format} by {self.period}"


DEFAULT = Layout()


def layout_of_key(key: str) -> Layout:
    """Returns the layout that the name of a data file shows; the codec of a file that names none is the default."""
    name = key.rpartition("/")[2]
    period = HOUR if "/hr=" in key else DAY
    for form in CODECS:
        for codec, end in (*STREAM_CODECS.items(), ("none" if form in (JSONL, CSV) else next(iter(CODECS[form])), "")):
            if name.endswith(f".{form}{end}"):
                return Layout(form, codec, period)
    return Layout(PARQUET, "zstd", period)
