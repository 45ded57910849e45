"""A Parquet file that grows in memory, row group by row group.

Rows are held as Arrow until they are a row group. Memory: those rows, twice while they are encoded, and the encoded
bytes once, because the buffer is given away without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_ingest.output.table_files import ROW_GROUP_ROWS

ROW_GROUP_BYTES = 64 << 20  # of Arrow

Options = Callable[[pa.Table], dict[str, Any]]


class GrowingFile:
    """`options` returns how the file is encoded; it is called once, with the rows of the first row group."""

    def __init__(
        self,
        schema: pa.Schema,
        options: Options,
        metadata: Mapping[bytes, bytes] | None = None,
        group_bytes: int = ROW_GROUP_BYTES,
    ) -> None:
        self._schema = schema
        self._options = options
        self._metadata = dict(metadata or {})
        self._group_bytes = group_bytes
        self._sink = BytesIO()
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.Table] = []
        self._held_rows = 0
        self.rows = 0
        self.held_bytes = 0  # of Arrow
        self.grouped_bytes = 0  # of Arrow, which the row groups had

    def __repr__(self) -> str:
        return f"GrowingFile({self.rows} rows, {self.encoded_bytes} bytes, {self.held_bytes} held)"

    @property
    def encoded_bytes(self) -> int:
        return self._sink.tell()

    def add(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        self.rows += table.num_rows
        self._held.append(table)
        self.held_bytes += table.nbytes
        self._held_rows += table.num_rows
        if self.held_bytes >= self._group_bytes or self._held_rows >= ROW_GROUP_ROWS:
            self.end_group()

    def end_group(self) -> None:
        """Encodes the rows that are held."""
        if not self._held:
            return
        table = pa.concat_tables(self._held)
        writer = self._open_writer(table)
        self._held = []
        writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self.grouped_bytes += self.held_bytes
        self._held_rows = self.held_bytes = 0

    def finish(self) -> bytes:
        """Returns the file."""
        self.end_group()
        self._open_writer(self._schema.empty_table()).close()
        return self._sink.getvalue()

    def _open_writer(self, table: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, self._schema, **self._options(table))
            self._writer.add_key_value_metadata(self._metadata)
        return self._writer
