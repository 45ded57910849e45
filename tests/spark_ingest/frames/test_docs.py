"""docs/spark.md matches the code: options, columns, types."""

from __future__ import annotations

import re

from spark_ingest.frames.read_options import parse_options
from spark_ingest.frames.record_array import COLUMNS
from spark_ingest.frames.sink_options import RECORD_COLUMNS, parse_write_options
from spark_ingest.frames.stream_options import parse_stream_options
from spark_ingest.frames.typed_schema import TYPED_COLUMNS
from spark_ingest.spark.context import ROOT

PAGE = (ROOT / "docs" / "spark.md").read_text()
READ = {
    "startOffset": "1",
    "endOffset": '{"0": 2}',
    "startTime": "2013-11-21",
    "endTime": "1385010000",
    "partitions": "0,2-3",
    "partitionBytes": "5",
    "undecodable": "skip",
    "cluster": "c",
    "store": "s",
    "topic": "t",
}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def options_in(title: str) -> set[str]:
    cells = re.findall(r"^\| (.*?) \|", section(title), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_option_of_a_read_is_documented_and_accepted() -> None:
    assert options_in("Options of a read") == {*READ, "topics", "columns", "schema", "output", "job"}
    parse_options(READ | {"columns": "key"})
    parse_options(READ | {"schema": "a INT", "columns": "_key,_extra"})
    parse_options(READ | {"output": "o", "job": "j"})


def test_every_option_of_a_stream_is_documented_and_accepted() -> None:
    own = {"maxRecordsPerBatch": "5", "maxBytesPerBatch": "5", "pollMs": "0", "onLost": "skip", "startOffset": "latest"}
    assert options_in("Streams") == set(own)
    parse_stream_options({name: text for name, text in READ.items() if not name.startswith("end")} | own)


def test_every_option_and_column_of_a_write_is_documented_and_accepted() -> None:
    given = {"url": "u", "topic": "t", "token": "x", "cacert": "f", "writeId": "w", "partitions": "2"}
    given |= {"sortRows": "true", "requestBytes": "9"}
    assert options_in("Writes") - {"false"} == {*given, *RECORD_COLUMNS}
    parse_write_options(given, [])


def test_every_column_is_documented() -> None:
    assert [name for name in COLUMNS if f"`{name}`" not in section("Options of a read")] == []
    assert [name for name in TYPED_COLUMNS if f"`{name}`" not in section("Typed columns")] == []
