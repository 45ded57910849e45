"""Which columns of Parquet files have a dictionary, and which are compressed."""

from __future__ import annotations

from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq

from spark_ingest.decode.blocks import without_dictionaries
from spark_ingest.output.table_files import incompressible_leaves, parquet_bytes, repeating_leaves

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


def codecs(table: pa.Table, codec: str = "zstd") -> dict[str, str]:
    data = parquet_bytes(table, codec, repeating_leaves(table))
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    assert pq.read_table(pa.BufferReader(data)).equals(without_dictionaries(table))
    return {one.path_in_schema: one.compression.lower() for one in columns}


def test_columns_of_nulls_or_of_one_value_are_not_compressed() -> None:
    """In a small file a value of all rows has no dictionary, and is compressed."""
    topic = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int8()), pa.array(["flights"]))
    headers = pa.array([[]] * ROWS, pa.map_(pa.string(), pa.binary()))
    table = TABLE.append_column("_topic", topic).append_column("_headers", headers)
    table = table.append_column("_partition", pa.array([3] * ROWS, pa.int32()))
    found = codecs(table)
    assert {path for path, codec in found.items() if codec == "uncompressed"} == {
        *("nothing", "_topic", "_partition", "_headers.key_value.key", "_headers.key_value.value")
    }
    assert {*found.values()} == {"zstd", "uncompressed"}
    assert codecs(table.slice(0, 50))["_topic"] == codecs(TABLE)["carrier"] == "zstd"
    assert {*codecs(table, "none").values()} == {"uncompressed"}
    assert codecs(table, "gzip")["id"] == "gzip"


def test_a_table_without_rows_has_none() -> None:
    assert repeating_leaves(TABLE.slice(0, 0)) == []


def test_small_files_compress_the_columns_that_get_smaller() -> None:
    coins = pa.array(["heads" if sha256(b"%d" % at).digest()[0] & 1 else "tails" for at in range(ROWS)])
    table = TABLE.append_column("coin", coins)
    many = pa.concat_tables([table] * 9)
    repeating = repeating_leaves(table)
    assert incompressible_leaves(table, "zstd", repeating) == ["coin"]
    assert incompressible_leaves(table, "none", repeating) == []
    for rows, codec in ((table, "UNCOMPRESSED"), (table.slice(0, 999), "ZSTD"), (many, "ZSTD")):
        data = parquet_bytes(rows, "zstd", repeating, ["coin"])
        group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
        found = {one.path_in_schema: one.compression for one in map(group.column, range(group.num_columns))}
        assert (found["coin"], found["id"]) == (codec, "ZSTD")
        assert pq.read_table(pa.BufferReader(data)).equals(rows)
