"""The data source without Spark: options, which records, which columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from engine.errors import Corrupt
from engine.format.batch import encode
from engine.testing.memory_store import MemoryStore
from spark_ingest.errors import IngestRefused
from spark_ingest.frames.direct_read import plan_partitions, read_partition
from spark_ingest.frames.read_options import parse_options
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows, row, undecodable_batch


@pytest.fixture
def log() -> TieredLog:
    log = TieredLog(MemoryStore())
    for segment in range(3):
        log.add(0, json_rows(20, first=segment * 20))
    log.add(1, json_rows(15))
    return log


def read(log: TieredLog, **options: object) -> pa.Table:
    given = {name: str(value) for name, value in ({"store": "memory://", "topic": log.topic} | options).items()}
    wanted = parse_options(given)
    parts = plan_partitions(log.store, wanted)
    batches = [batch for topic, slices in parts for batch in read_partition(log.store, wanted, topic, slices)]
    return pa.Table.from_batches(batches, wanted.schema)


def places(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


EVERY_PLACE = [*((0, at) for at in range(60)), *((1, at) for at in range(15))]


@pytest.mark.parametrize("partition_bytes", [1, 500, 1 << 20])
def test_every_record_is_read_once_however_it_is_cut(log: TieredLog, partition_bytes: int) -> None:
    table = read(log, partitionBytes=partition_bytes)
    assert places(table) == EVERY_PLACE
    assert table["value"].to_pylist() == [value for _, _, _, value in log.records()]


def test_a_record_comes_with_all_that_belongs_to_it() -> None:
    log = TieredLog(MemoryStore())
    log.add(0, [row(None, 1, key=b"\xff", headers=[("a", b"1"), ("a", None)]), row(b"", timestamp=-1)])
    assert read(log).to_pylist() == [
        {
            "topic": "flights",
            "partition": 0,
            "offset": 0,
            "timestamp": datetime(2013, 11, 21, 5, 0, 1, tzinfo=UTC),
            "key": b"\xff",
            "value": None,
            "headers": [{"name": "a", "value": b"1"}, {"name": "a", "value": None}],
        },
        {"topic": "flights", "partition": 0, "offset": 1, "timestamp": None, "key": None, "value": b"", "headers": []},
    ]


def test_offsets_and_times_bound_what_is_read(log: TieredLog) -> None:
    assert places(read(log, startOffset=10, endOffset=50)) == [place for place in EVERY_PLACE if 10 <= place[1] < 50]
    assert places(read(log, startOffset="earliest", endOffset="latest")) == EVERY_PLACE
    found = read(log, startTime="2013-11-21T05:00:10Z", endTime=START_MS + 30_000)
    assert places(found) == [place for place in EVERY_PLACE if 10 <= place[1] < 30]
    assert read(log, startTime="2014-01-01").num_rows == 0
    assert read(log, startOffset=1000).num_rows == 0


def test_segments_outside_the_wanted_times_are_not_fetched(log: TieredLog) -> None:
    wanted = parse_options({"store": "x", "topic": "flights", "startTime": str(START_MS + 45_000)})
    assert [(one.partition, one.start) for _, slices in plan_partitions(log.store, wanted) for one in slices] == [
        (0, 40)
    ]


def test_what_retention_took_is_not_asked_for(log: TieredLog) -> None:
    log.raise_log_start(0, 25)
    assert places(read(log)) == [place for place in EVERY_PLACE if place[0] == 1 or place[1] >= 25]


def test_columns_can_be_chosen(log: TieredLog) -> None:
    table = read(log, columns="value, offset")
    assert table.column_names == ["value", "offset"]
    assert table.num_rows == 75


def test_topics_can_be_chosen_by_pattern(log: TieredLog) -> None:
    TieredLog(log.store, topic="trains").add(0, json_rows(4))
    table = pa.concat_tables([read(log, topic="trains")])
    assert set(table["topic"].to_pylist()) == {"trains"}
    wanted = parse_options({"store": "x", "topics": "fli.*|trains"})
    assert {topic for topic, _ in plan_partitions(log.store, wanted)} == {"flights", "trains"}


def test_a_batch_that_cannot_be_decoded_fails_the_read_unless_it_is_to_be_skipped() -> None:
    batch = undecodable_batch()
    log = TieredLog(MemoryStore())
    log.add_batches(0, [encode(json_rows(2)), batch, encode(json_rows(1))], [0], 10)
    with pytest.raises(Corrupt, match="offsets 2 to 8 cannot be decoded"):
        read(log)
    assert places(read(log, undecodable="skip")) == [(0, 0), (0, 1), (0, 9)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of 'topic' and 'topics'"),
        ({"store": "x", "topic": "a", "topics": "b"}, "one of 'topic' and 'topics'"),
        ({"store": "x", "topics": "("}, "topics="),
        ({"store": "x", "topic": "a", "offset": "1"}, r"unknown options \['offset'\]"),
        ({"store": "x", "topic": "a", "startOffset": "-1"}, "startoffset='-1'"),
        ({"store": "x", "topic": "a", "startTime": "soon"}, "starttime='soon'"),
        ({"store": "x", "topic": "a", "columns": "value,size"}, r"names \['size'\]"),
        ({"store": "x", "topic": "a", "columns": "value,value"}, "twice"),
        ({"store": "x", "topic": "a", "undecodable": "maybe"}, "undecodable='maybe'"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(IngestRefused, match=message):
        parse_options(options)


def test_options_that_spark_adds_to_a_table_are_accepted() -> None:
    own = {"store": "s", "topic": "t"}
    added = {"option.store": "s", "option.topic": "t", "provider": "penstock", "owner": "me", "path": "x"}
    assert parse_options(own | added | {"location": "x"}) == parse_options(own)


def test_absolute_paths_are_stores_as_they_are_for_the_commands() -> None:
    found = parse_options({"store": "/data/my store", "topic": "flights", "output": "/lake"})
    assert (found.store, found.output) == ("file:///data/my%20store", "file:///lake")
    assert parse_options({"store": "s3://log/a?region=x", "topic": "flights"}).store == "s3://log/a?region=x"


@pytest.mark.parametrize(("option", "message"), [("topic", "no topic 'nosuch'"), ("topics", "no topic that matches")])
def test_a_topic_that_is_not_in_the_store_is_an_error(log: TieredLog, option: str, message: str) -> None:
    with pytest.raises(IngestRefused, match=message):
        plan_partitions(log.store, parse_options({"store": "x", option: "nosuch"}))
