"""Formats of data files: every row comes back, the bytes follow from the rows, and a table keeps its layout."""

from __future__ import annotations

import csv
import gzip
import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
import zstandard

from engine.testing.memory_store import MemoryStore
from spark_ingest.config.job_topics import relation_problems
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import (
    AVRO,
    CODECS,
    CSV,
    DAY,
    DEFAULT,
    DELIMITED,
    HOUR,
    JSONL,
    LINES,
    MINUTES,
    ORC,
    PARQUET,
    PERIODS,
    POSITIONS,
    Field,
    Layout,
    layout_of_key,
)
from spark_ingest.output.file_formats import Unreadable, count_lines, file_bytes, read_places
from spark_ingest.output.names import plan_number_of
from spark_ingest.output.owners import layouts_of
from spark_ingest.output.schema_object import table_ddl
from spark_ingest.plan import Plan, Recipe, TableSchema, decode, encode
from tests.spark_ingest.jobs import another_output, assert_sound, dead_letters, listed_files, run_job
from tests.spark_ingest.tiered import START_MS, TieredLog, row

FORMATS = [(form, codec, "|" if form == DELIMITED else "") for form in CODECS for codec in CODECS[form]]
LAYOUTS = [
    *(
        Layout(form, codec, HOUR, delimiter=delimiter, column="name" if form == LINES else "")
        for form, codec, delimiter in FORMATS
    ),
    *(Layout(period=period) for period in PERIODS if period not in (HOUR, POSITIONS)),
    Layout(ORC, period=POSITIONS, positions=2),
    Layout(AVRO, "none", DAY, "Asia/Kathmandu", "daily/%Y/%m/%d", fields=(Field("by_name", "name"),)),
]
HOUR_MS = 3_600_000
VALUES = [
    b'{"id":1,"name":"a,\\"b\\"\\nc","price":1.5,"tags":["x","y"],"at":{"lat":1}}',
    b'{"id":2,"name":"","more":[1]}',
    b'{"id":null,"price":1e22}',
    b"bad",
]


def log_of() -> TieredLog:
    log = TieredLog(MemoryStore())
    rows = [
        row(one, timestamp=START_MS + at * HOUR_MS, key=b"\x00\xff", headers=[("h", b"1"), ("h", None)])
        for at, one in enumerate(VALUES)
    ]
    log.add(0, [*rows, row(None)])
    return log


def run(layout: Layout, log: TieredLog | None = None) -> MemoryStore:
    output = another_output()
    run_job((log or log_of()).store, output, recipe=Recipe(layout=layout), bad_percent_max=100, task_bytes=1 << 20)
    return output


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: f"{one.codec} {one.fixed}")
def test_files_of_each_layout_are_sound_and_follow_from_the_rows(layout: Layout) -> None:
    log = log_of()
    output, again = run(layout, log), run(layout, log)
    files = listed_files(output)
    assert len(files) == (2 if layout.fields else 3 if layout.period in (HOUR, *MINUTES, POSITIONS) else 1)
    assert [output.get(key) for key in files] == [again.get(key) for key in files]
    assert all(key.endswith(layout.extension) and plan_number_of(key) == 1 for key in files)
    found = layout_of_key(files[0])
    assert (found.format, found.extension) == (layout.format, layout.extension)
    assert layouts_of(output)("flights").fixed == layout.fixed
    findings = assert_sound(output)
    assert len(dead_letters(output)) == 1
    if layout.format == LINES:
        assert sum(count_lines(output.get(key), layout) for key in files) == findings.rows
        return
    places = [place for key in files for place in read_places(output.get(key), layout).to_pylist()]
    assert sorted((one["_partition"], one["_offset"]) for one in places) == [(0, 0), (0, 1), (0, 2), (0, 4)]


def rows_of(layout: Layout) -> list[Any]:
    output = run(layout)
    [data] = [output.get(key) for key in listed_files(output)]
    if layout.codec == "gzip":
        data = gzip.decompress(data)
    if layout.codec == "zstd":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    if layout.format == JSONL:
        return [msgspec.json.decode(line) for line in data.splitlines()]
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


@pytest.mark.parametrize("codec", CODECS[JSONL])
def test_a_line_of_json_has_the_columns_of_a_row(codec: str) -> None:
    first, second, *_ = rows_of(Layout(JSONL, codec, DAY))
    assert {name: first[name] for name in ("id", "name", "price", "tags", "at", "_key", "_headers", "_offset")} == {
        "id": 1,
        "name": 'a,"b"\nc',
        "price": 1.5,
        "tags": ["x", "y"],
        "at": {"lat": 1},
        "_key": "AP8=",
        "_headers": [["h", "MQ=="], ["h", None]],
        "_offset": 0,
    }
    assert first["_event_time"] == "2013-11-21T05:00:00Z"
    assert (second["_extra"], second["price"]) == (None, None)


@pytest.mark.parametrize("codec", CODECS[CSV])
def test_csv_has_a_header_and_json_in_nested_columns(codec: str) -> None:
    first, second, third, *_ = rows_of(Layout(CSV, codec, DAY))
    assert (first["id"], first["name"], first["tags"], first["at"]) == ("1", 'a,"b"\nc', '["x","y"]', '{"lat":1}')
    assert (first["_key"], first["_event_time"][:19]) == ("AP8=", "2013-11-21T05:00:00")
    assert (second["name"], second["price"], third["name"]) == ("", "", "")


def test_csv_has_dates_as_iso_8601() -> None:
    table = pa.table({"day": pa.array(["2026-11-21", None]).cast(pa.date32())})
    assert file_bytes(table, Layout(CSV, "none")).splitlines() == [b'"day"', b'"2026-11-21"', b""]


@pytest.mark.parametrize("form", [CSV, JSONL])
@pytest.mark.parametrize("size", [900_000, 3_000_000])
def test_large_rows_are_read_back(form: str, size: int) -> None:
    log = TieredLog(MemoryStore())
    log.add(0, [row(b'{"id":1,"text":"%s"}' % (b'\\n,\\"' * (size // 5)), 1), row(b'{"id":2}', 2)])
    output = run(Layout(form, "zstd", DAY), log)
    assert_sound(output)


def test_text_has_a_line_for_each_row_and_one_column() -> None:
    table = pa.table({"a": [b"\xff", b"x\r\ny\nz", None], "b": [1.5, None, 3.0], "c": [{"d": 1}, None, {"d": 2}]})
    for name, lines in (("a", b"\xff\nx y z\n\n"), ("b", b"1.5\n\n3\n"), ("c", b'{"d":1}\n\n{"d":2}\n')):
        assert file_bytes(table, Layout(LINES, "none", column=name)) == lines
    assert (
        table_ddl("raw", TableSchema("", []), Layout(LINES, column="_value")) == "`value` STRING, `dt` DATE, `hr` INT"
    )
    with pytest.raises(IngestRefused, match="no column missing"):
        file_bytes(table, Layout(LINES, "none", column="missing"))


def test_another_separator_is_between_the_fields() -> None:
    table = pa.table({"a": ["x|y", None], "b": [1, 2]})
    found = file_bytes(table, Layout(DELIMITED, "none", delimiter="|"))
    assert found.splitlines() == [b'"a"|"b"', b'"x|y"|1', b"|2"]


@pytest.mark.parametrize("codec", CODECS[AVRO])
def test_avro_has_the_columns_of_a_row(codec: str) -> None:
    output = run(Layout(AVRO, codec, DAY))
    [data] = [output.get(key) for key in listed_files(output)]
    reader: Any = fastavro.reader(io.BytesIO(data))
    assert reader.codec == CODECS[AVRO][codec]
    first, second, *_ = list(reader)
    assert {name: first[name] for name in ("id", "name", "price", "tags", "at", "_key", "_headers", "_offset")} == {
        "id": 1,
        "name": 'a,"b"\nc',
        "price": 1.5,
        "tags": ["x", "y"],
        "at": {"lat": 1},
        "_key": b"\x00\xff",
        "_headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        "_offset": 0,
    }
    assert first["_event_time"] == datetime(2013, 11, 21, 5, tzinfo=UTC)
    assert (second["_extra"], second["price"]) == (None, None)


def test_avro_names_stay_different_and_values_keep_their_types() -> None:
    table = pa.table(
        {
            "a-b": [1],
            "a_x2d_b": pa.array([Decimal("1.5")], pa.decimal128(38, 18)),
            "1": pa.array([[{"é": {"x-y": True}}, None]]),
            "day": pa.array([date(2026, 11, 21)]),
        }
    )
    data = file_bytes(table, Layout(AVRO, "deflate"))
    assert data == file_bytes(table, Layout(AVRO, "deflate"))
    assert list(fastavro.reader(io.BytesIO(data))) == [
        {
            "a_x2d_b": 1,
            "a_x5f_x2d_b": Decimal("1.5"),
            "_x31_": [{"_xe9_": {"x_x2d_y": True}}, None],
            "day": date(2026, 11, 21),
        }
    ]


def test_orc_has_the_types_of_parquet() -> None:
    of_orc, of_parquet = run(Layout(ORC, "zstd", DAY)), run(Layout(PARQUET, "snappy", DAY))
    [orc], [parquet] = ([one.get(key) for key in listed_files(one)] for one in (of_orc, of_parquet))
    rows = pa.orc.ORCFile(pa.BufferReader(orc)).read()
    expected = pq.read_table(pa.BufferReader(parquet))
    assert rows.column_names == expected.column_names
    plain = [name for name in rows.column_names if "time" not in name]
    assert rows.select(plain).to_pylist() == expected.select(plain).to_pylist()
    assert rows["_event_time"].cast(pa.timestamp("us", "UTC")).equals(expected["_event_time"])


@pytest.mark.parametrize("form", list(CODECS))
def test_a_damaged_file_is_unreadable(form: str) -> None:
    for codec in CODECS[form]:
        with pytest.raises(Unreadable):
            read_places(b"damaged", Layout(form, codec))


def test_a_table_keeps_its_format_and_its_period() -> None:
    log = log_of()
    output = run(Layout(ORC, "zstd", DAY), log)
    log.add(0, [row(b'{"id":9}', 9)])
    for layout in (DEFAULT, Layout(ORC, "zstd", HOUR)):
        with pytest.raises(IngestRefused, match="has files of the layout orc by day, not"):
            run_job(log.store, output, recipe=Recipe(layout=layout))
    assert run_job(log.store, output, recipe=Recipe(layout=Layout(ORC, "snappy", DAY))).rows == 1
    first = run(DEFAULT, log)
    log.add(0, [row(b'{"id":10}', 10)])
    with pytest.raises(IngestRefused, match="parquet by hour, not csv by hour"):
        run_job(log.store, first, recipe=Recipe(layout=Layout(CSV, "none", HOUR)))


def test_a_codec_of_another_format_is_a_mistake() -> None:
    settings = {"format": "orc", "codec": "gzip"}
    mistake = "is 'gzip'; write one of: zstd, snappy, zlib, lz4, none"
    assert relation_problems(settings, settings) == [("codec", mistake)]


def test_a_plan_keeps_the_layout() -> None:
    log, output = log_of(), another_output()
    [(plan, _)] = run_job(log.store, output, recipe=Recipe(layout=Layout(CSV, "gzip", DAY)), bad_percent_max=100).plans
    assert decode(encode(plan), "x", Plan).recipe.layout == Layout(CSV, "gzip", DAY)
