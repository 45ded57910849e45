"""Which columns of Parquet files have a dictionary."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from spark_ingest.output.table_files import parquet_bytes, repeating_leaves

ROWS = 2000
STRUCTS = pa.array([{"kind": "a" if at % 2 else "b", "at": at} for at in range(ROWS)])
LISTS = pa.array([[at] for at in range(ROWS)])
TABLE = pa.table(
    {
        "_offset": range(ROWS),
        "id": range(ROWS),
        "carrier": [f"c{at % 9}" for at in range(ROWS)],
        "nothing": pa.nulls(ROWS, pa.string()),
        "where": STRUCTS,
        "list": LISTS,
    }
)
PATHS = ["carrier", "nothing", "where.kind", "list.list.element"]


def test_columns_whose_values_repeat_have_a_dictionary() -> None:
    assert repeating_leaves(TABLE) == PATHS
    data = parquet_bytes(TABLE, repeating=PATHS)
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    assert [one.path_in_schema for one in columns if one.has_dictionary_page] == PATHS
    assert pq.read_table(pa.BufferReader(data)).equals(TABLE)


def test_a_table_without_rows_has_none() -> None:
    assert repeating_leaves(TABLE.slice(0, 0)) == []
