"""Collects the rows of a task in files of about a target size: one open file for each directory of the table.

A file ends at the end of a chunk: when it has its share of the bytes that its directory is expected to get, or when the
open files take too much memory; then the largest one ends. The others end with the task. The machine does not matter:
sizes are those of the encoded bytes, which are the same for the same rows and release of PyArrow. The plan has that
release, and no other one executes it (plan.py).

Memory: OPEN_BYTES, and the chunk that is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from spark_ingest.layout import Layout
from spark_ingest.output import names
from spark_ingest.output.growing_file import ROW_GROUP_BYTES, GrowingFile
from spark_ingest.output.splitting import split_rows
from spark_ingest.output.table_files import repeating_leaves, write_options
from spark_ingest.plan import TaskSpec
from spark_ingest.source.slices import PartitionOffset, Range, between

OPEN_BYTES = 448 << 20  # of files that have not ended, encoded or as Arrow
CHUNK_BYTES_LEAST, CHUNK_BYTES_MOST = 4 << 20, 64 << 20
_GROUP_BYTES_LEAST = 1 << 20
_FIRST_RATIO = 0.25  # of encoded bytes to Arrow, until the task has a row group


def chunk_bytes_for(file_bytes: int) -> int:
    """Returns the size of chunks: files end with one, so it is a part of the target also after compression."""
    return min(max(file_bytes // 2, CHUNK_BYTES_LEAST), CHUNK_BYTES_MOST)


@dataclass(slots=True)
class EndedFile:
    """A file that gets no more rows. `first` and `last` are pairs of partition and offset."""

    key: str
    file: GrowingFile
    first: tuple[int, int]
    last: tuple[int, int]


@dataclass(slots=True)
class _Open:
    file: GrowingFile
    begin: PartitionOffset
    end: PartitionOffset
    first: tuple[int, int]
    last: tuple[int, int] = (0, 0)
    added: list[int] = field(default_factory=list)  # bytes of Arrow, by chunk

    @property
    def bytes_in_memory(self) -> int:
        return self.file.encoded_bytes + self.file.held_bytes


class RollingFiles:
    """The open files of one task. `open_bytes` bounds their memory."""

    def __init__(self, order: TaskSpec, open_bytes: int = OPEN_BYTES) -> None:
        self._order = order
        self._layout: Layout = order.recipe.layout
        self._open_bytes = open_bytes
        self._group_bytes = min(max(self._layout.file_bytes // 2, _GROUP_BYTES_LEAST), ROW_GROUP_BYTES)
        self._open: dict[str, _Open] = {}
        self._log_bytes = sum(piece.weight_bytes for piece in order.task.slices)
        self._read_bytes = self._chunks = 0

    def add(self, table: pa.Table, ranges: Sequence[Range], read_bytes: int) -> list[EndedFile]:
        """Adds the rows of a chunk, for which `read_bytes` were read; returns the files that end with it."""
        self._read_bytes += read_bytes
        self._chunks += 1
        ended = []
        for directory, rows in split_rows(table, self._layout):
            self._add(directory, _own(rows, table), ranges)
            if is_full(*self._progress(self._open[directory]), self._layout.file_bytes):
                ended.append(self._end(directory))
        while sum(file.bytes_in_memory for file in self._open.values()) > self._open_bytes:
            ended += self._relieve()
        return ended

    def finish(self) -> list[EndedFile]:
        return [self._end(directory) for directory in sorted(self._open)]

    def _add(self, directory: str, rows: pa.Table, ranges: Sequence[Range]) -> None:
        begin, end = (ranges[0].partition, ranges[0].start), (ranges[-1].partition, ranges[-1].end)
        if directory not in self._open:
            options = partial(_options, codec=self._layout.codec)
            file = GrowingFile(rows.schema, options, group_bytes=self._group_bytes)
            self._open[directory] = _Open(file, begin, end, _place(rows, 0))
        open_file = self._open[directory]
        open_file.end, open_file.last = end, _place(rows, -1)
        open_file.added.append(rows.nbytes)
        open_file.file.add(rows)

    def _progress(self, open_file: _Open) -> tuple[float, float, float]:
        """Returns the encoded bytes of a file, those of its last chunk, and those that its directory may still get."""
        files = [other.file for other in self._open.values()]
        grouped = sum(file.grouped_bytes for file in files)
        ratio = sum(file.encoded_bytes for file in files) / grouped if grouped else _FIRST_RATIO
        if open_file.file.grouped_bytes:
            ratio = open_file.file.encoded_bytes / open_file.file.grouped_bytes
        growth = open_file.added[-1] * ratio
        chunks_left = max(0, self._log_bytes - self._read_bytes) * self._chunks / max(1, self._read_bytes)
        mean = sum(open_file.added) / len(open_file.added) * ratio
        return open_file.file.encoded_bytes + open_file.file.held_bytes * ratio, growth, mean * chunks_left

    def _relieve(self) -> list[EndedFile]:
        """Encodes the rows of the file that holds the most; if they are few, ends the largest file."""
        held = max(self._open, key=lambda name: (self._open[name].file.held_bytes, name))
        if self._open[held].file.held_bytes >= self._group_bytes // 16:
            self._open[held].file.end_group()
            return []
        return [self._end(max(self._open, key=lambda name: (self._open[name].bytes_in_memory, name)))]

    def _end(self, directory: str) -> EndedFile:
        file, topic = self._open.pop(directory), self._order.task.topic
        ranges = between(self._order.task.ranges, file.begin, file.end)
        name = names.data_file_name(topic, ranges, self._order.number, self._layout)
        return EndedFile(names.table_prefix(topic) + directory + name, file.file, file.first, file.last)


def is_full(size: float, growth: float, rest: float, target: int) -> bool:
    """Returns whether a file ends, because all bytes make several files and it has its share, to half a chunk.

    The last of them ends with the task: the rest is an estimate, and a file of it alone would be small.
    """
    files = round((size + rest) / target)
    return files > 1 and size + growth / 2 >= (size + rest) / files


def _options(table: pa.Table, codec: str) -> dict[str, object]:
    return write_options(table.schema, table.num_rows, codec, repeating_leaves(table))


def _own(rows: pa.Table, table: pa.Table) -> pa.Table:
    """Returns the rows without the others of their chunk, which a slice would keep in memory."""
    return rows if rows.num_rows == table.num_rows else rows.take(pa.array(np.arange(rows.num_rows)))


def _place(rows: pa.Table, at: int) -> tuple[int, int]:
    return rows["_partition"][at].as_py(), rows["_offset"][at].as_py()
