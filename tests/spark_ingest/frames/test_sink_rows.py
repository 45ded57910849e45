"""Rows as the requests of a task: records, partitions, positions."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_ingest.errors import IngestRefused
from spark_ingest.frames.sink_options import parse_write_options
from spark_ingest.frames.sink_rows import POSITIONS, lines_by_partition, requests

TARGET = {"url": "http://x", "topic": "t"}


def lines(rows: list[dict[str, Any]], task: int = 0, partitions: int = 3, **types: pa.DataType) -> dict[int, list[Any]]:
    schema = pa.schema(types) if types else None
    batch = pa.RecordBatch.from_pylist(rows, schema)
    found = lines_by_partition([batch], task, partitions)
    return {at: [json.loads(one) for one in of_partition] for at, of_partition in found.items()}


def test_a_value_column_is_stored_as_it_is() -> None:
    rows = [{"value": '{"a":1}'}, {"value": "text"}, {"value": None}]
    assert lines(rows) == {0: [{"value": {"a": 1}}, {"value_base64": "dGV4dA=="}, {"value": None}]}


def test_rows_without_a_value_column_are_json_objects() -> None:
    when = datetime(2013, 11, 21, 5, tzinfo=UTC)
    row = {"id": 1, "at": when, "day": date(2013, 11, 21), "amt": Decimal("1.50"), "raw": b"\xff", "no": None}
    row["key"] = "k"
    [found] = [one for of_partition in lines([row]).values() for one in of_partition]
    assert found["key"] == "k"
    assert found["value"] == {
        "id": 1,
        "at": "2013-11-21T05:00:00+00:00",
        "day": "2013-11-21",
        "amt": "1.50",
        "raw": "ff",
        "no": None,
    }


def test_headers_and_timestamps_go_with_the_record() -> None:
    when = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    row = {"value": "1", "headers": [{"name": "h", "value": b"1"}], "timestamp": when}
    assert lines([row]) == {0: [{"value": 1, "headers": {"h": {"base64": "MQ=="}}, "timestamp": 1000}]}


def test_the_partition_follows_from_the_column_the_key_or_the_task() -> None:
    by_key = {"value": "1", "key": "k", "partition": None}
    assert {at: len(found) for at, found in lines([by_key | {"partition": 1}, by_key, by_key]).items()} == {1: 1, 2: 2}
    assert list(lines([{"value": "1"}], task=7)) == [1]
    with pytest.raises(ValueError, match="partition 3, and the topic has 3"):
        lines([{"value": "1", "partition": 3}])


def test_the_last_request_of_a_batch_has_all_its_positions() -> None:
    parts = list(requests([b"11", b"22", b"33", b"44", b"55"], 1, 7, 6))
    assert [(one.body, one.rows) for one in parts] == [(b"11\n22", 2), (b"33\n44", 2), (b"55", 1)]
    start = 7 * POSITIONS
    assert [(one.first - start, one.last - start) for one in parts] == [(0, 0), (1, 1), (2, POSITIONS - 1)]
    [alone] = requests([b"11"], 1, 0, 6)
    assert (alone.first, alone.last) == (0, POSITIONS - 1)


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ({"topic": "t"}, [], "'url'"),
        (TARGET | {"acks": "1"}, [], r"unknown options \['acks'\]"),
        (TARGET | {"writeId": "a b"}, [], "writeId='a b'"),
        (TARGET | {"sortRows": "yes"}, [], "sortRows"),
        (TARGET, [("value", "int")], "'value' is int"),
        (TARGET, [("timestamp", "string")], "'timestamp' is string"),
    ],
)
def test_a_wrong_option_or_column_is_named(
    options: dict[str, str], columns: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(IngestRefused, match=message):
        parse_write_options(options, columns)
