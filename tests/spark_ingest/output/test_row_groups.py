"""Row groups of several files become one file that readers take, with the pages as they were."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_ingest.output.row_groups import joined, parts_of

SCHEMA = pa.schema(
    [
        pa.field("at", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
        ("is_on", pa.bool_()),
        ("headers", pa.map_(pa.string(), pa.binary())),
        ("place", pa.struct([("name", pa.string()), ("parts", pa.list_(pa.float64()))])),
        *[(f"c{at}", pa.int32()) for at in range(12)],  # lists of 15 and more have a longer head
    ]
)


def rows(first: int, count: int) -> pa.Table:
    columns = [
        range(first, first + count),
        [f"text {at % 7}" for at in range(count)],
        [None] * count,
        [at % 2 == 0 for at in range(count)],
        [[("name", b"value")]] * count,
        [{"name": str(at), "parts": [1.0, at / 2]} for at in range(count)],
        *[[at] * count for at in range(12)],
    ]
    return pa.table([pa.array(one, field.type) for one, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def written(*tables: pa.Table, **options: Any) -> bytes:
    """Returns a file with a row group for each table."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, SCHEMA, store_schema=False, **options) as writer:
        for one in tables:
            writer.write_table(one)
        writer.add_key_value_metadata({b"own": b"kept"})
    data: bytes = sink.getvalue().to_pybytes()
    return data


def test_a_file_of_all_its_own_row_groups_is_that_file() -> None:
    own = written(rows(0, 20), rows(20, 5), compression="zstd")
    assert joined(own, []) == own


@pytest.mark.parametrize("options", [{}, {"write_page_index": True, "compression": "zstd"}, {"use_dictionary": False}])
def test_row_groups_of_files_are_joined_in_their_order(options: dict[str, Any]) -> None:
    own = written(rows(30, 5), rows(335, 1))
    first, other = (parts_of(written(*tables, **options)) for tables in ([rows(0, 10), rows(10, 20)], [rows(35, 300)]))
    assert first.schema == other.schema == parts_of(own).schema
    copied = [*first.row_groups, *other.row_groups]
    assert [one.rows for one in copied if one] == [10, 20, 300]
    made = joined(own, [(behind, one) for behind, one in zip((0, 0, 5), copied, strict=True) if one])
    found = pq.ParquetFile(pa.BufferReader(made))
    expected = pa.concat_tables([rows(0, 10), rows(10, 20), rows(30, 5), rows(35, 300), rows(335, 1)])
    assert found.read().to_pylist() == expected.to_pylist()
    meta = found.metadata
    assert (meta.num_rows, meta.num_row_groups, meta.metadata[b"own"]) == (336, 5, b"kept")
    assert meta.row_group(3).column(0).statistics.max == 334


def test_files_of_other_columns_have_another_schema() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(rows(0, 1).drop_columns(["text"]), sink)
    assert parts_of(sink.getvalue().to_pybytes()).schema != parts_of(written(rows(0, 1))).schema
