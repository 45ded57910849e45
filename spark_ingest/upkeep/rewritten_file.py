"""Builds the file of one group of a rewrite in memory, of rows and of row groups of its inputs.

A row group of at least COPIED_BYTES, or COPIED_BYTES_OF_FEW if the inputs have few, is copied, pages and all, if it has
the schema and the codec of the new file and no value of `_extra` may be lifted (docs/decisions/0068). The caller knows
whether rows of it are dropped. The rows of other row groups are collected into larger ones. The order of the rows is
that of the inputs in any case.

The footer names the inputs (`penstock.replaces`), for readers that know only a listing.
"""

from __future__ import annotations

import json
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_ingest.output.growing_file import GrowingFile
from spark_ingest.output.rewrites import Group
from spark_ingest.output.row_groups import ParquetParts, RowGroup, joined, parts_of
from spark_ingest.output.stored_file import StoredFile
from spark_ingest.output.table_files import parquet_bytes, repeating_leaves, write_options
from spark_ingest.types.standard_columns import EXTRA

REPLACES = b"penstock.replaces"
COPIED_BYTES = 2 << 20  # of Parquet: at most 64 row groups in a file of compact.FILE_BYTES are copied ones
FEW_ROW_GROUPS = 64  # of all inputs together
COPIED_BYTES_OF_FEW = 512 << 10  # the description of a row group with 25 columns takes 4 KB of the footer


class OpenedFile:
    """A Parquet file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.parquet = pq.ParquetFile(pa.BufferReader(data))

    @cached_property
    def parts(self) -> ParquetParts:
        return parts_of(self.data)


class RewrittenFile:
    """A Parquet file in memory, and the bounds of its rows."""

    def __init__(self, group: Group, schema: pa.Schema, codec: str, row_groups: int) -> None:
        """`row_groups` is the number of those of all inputs."""
        rows = sum(file.rows for file in group.inputs)
        replaced = [file.key.rpartition("/")[2] for file in group.inputs]
        self._schema = schema
        self._codec = codec
        self._copied_bytes = COPIED_BYTES if row_groups > FEW_ROW_GROUPS else min(COPIED_BYTES_OF_FEW, COPIED_BYTES)
        self._made = GrowingFile(
            schema,
            lambda first: write_options(schema, rows, codec, repeating_leaves(first)),
            {REPLACES: json.dumps(replaced).encode()},
        )
        self._copied: list[tuple[int, RowGroup]] = []  # behind how many rows that were made
        self.rows = 0
        self.first = self.last = (0, 0)

    def copyable(self, opened: OpenedFile, at: int, *, lifts: bool) -> RowGroup | None:
        """Returns a row group if it can be copied."""
        metadata = opened.parquet.metadata.row_group(at)
        columns = [metadata.column(number) for number in range(metadata.num_columns)]
        if sum(column.total_compressed_size for column in columns) < self._copied_bytes:
            return None
        if codec_of(metadata) != self._codec:
            return None
        if lifts and any(column.path_in_schema == EXTRA.name and not _is_null(column) for column in columns):
            return None
        return opened.parts.row_groups[at] if opened.parts.schema == self._written_schema else None

    def copy(self, row_group: RowGroup, file: StoredFile) -> None:
        """Adds a row group of a file that drops no row."""
        self._made.end_group()
        self._copied.append((self._made.rows, row_group))
        self._reach(row_group.rows, file.first, file.last)

    def add(self, table: pa.Table) -> None:
        if table.num_rows:
            self._made.add(table)
            self._reach(table.num_rows, *_bounds(table))

    def finish(self) -> bytes:
        data = self._made.finish()
        return joined(data, self._copied) if self._copied else data

    def _reach(self, rows: int, first: tuple[int, int], last: tuple[int, int]) -> None:
        self.first = min(self.first, first) if self.rows else first
        self.last = max(self.last, last) if self.rows else last
        self.rows += rows

    @cached_property
    def _written_schema(self) -> bytes:
        return parts_of(parquet_bytes(self._schema.empty_table())).schema


def codec_of(row_group: pq.RowGroupMetaData) -> str:
    """Returns the codec of the column `_offset`: columns of one value are not compressed."""
    columns = (row_group.column(at) for at in range(row_group.num_columns))
    compression = next(str(column.compression).lower() for column in columns if column.path_in_schema == "_offset")
    return "none" if compression == "uncompressed" else compression


def _is_null(column: pq.ColumnChunkMetaData) -> bool:
    """Returns whether all values are null, as far as statistics say."""
    statistics = column.statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == column.num_values


def _bounds(table: pa.Table) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the least and the greatest pair of partition and offset."""
    partitions = np.asarray(table["_partition"]).astype(np.int64)
    offsets = np.asarray(table["_offset"])
    low, high = int(partitions.min()), int(partitions.max())
    return (low, int(offsets[partitions == low].min())), (high, int(offsets[partitions == high].max()))
