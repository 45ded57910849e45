"""Writes of a real Spark to a real node: what arrives, and what repeated tasks and replayed batches add: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from engine.tiering.store.store import open_store
from penstock import Record
from penstock.sync import Client
from penstock.testing import running_node
from tests.spark_ingest.tiered import TieredLog, json_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_node() as url:
        yield url


def records_of(url: str, topic: str) -> list[Record]:
    with Client(url) as client, client.consume(topic, follow=False) as consumer:
        return list(consumer)


def create(url: str, topic: str) -> dict[str, str]:
    with Client(url) as client:
        client.create_topic(topic, partitions=2)
    return {"url": url, "topic": topic}


def test_rows_become_records_and_a_write_that_is_repeated_adds_none(spark: SparkSession, url: str) -> None:
    target = create(url, "rides")
    frame = spark.range(100).selectExpr("id", "concat('k', id % 5) AS key", "timestamp_seconds(id) AS timestamp")
    for _ in range(2):
        frame.write.format("penstock").options(**target, writeId="nightly-1").mode("append").save()
    found = records_of(url, "rides")
    assert sorted(one.json()["id"] for one in found) == list(range(100))
    assert {(one.key, one.timestamp) for one in found} == {(b"k%d" % (at % 5), at * 1000) for at in range(100)}
    assert len({(one.key, one.partition) for one in found}) == 5
    frame.where("id < 3").write.format("penstock").options(**target).mode("append").save()
    assert len(records_of(url, "rides")) == 103
    with pytest.raises(Exception, match="cannot be overwritten"):
        frame.write.format("penstock").options(**target).mode("overwrite").save()


@pytest.mark.long
def test_a_replayed_batch_adds_only_what_is_missing(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """One task of a batch stores its rows, in several requests, and another one fails. Then the query starts again."""
    target = create(url, "copies")
    log = TieredLog(open_store((tmp_path / "store").as_uri()), batch_records=50)
    log.add(0, json_rows(600))
    good = tmp_path / "good"

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if 599 in batch["id"].to_pylist() and not good.exists():
                raise RuntimeError("the executor is lost")
            yield batch

    def run() -> None:
        source = spark.readStream.format("penstock").option("store", log.store.url).option("topic", log.topic)
        frame: DataFrame = source.option("schema", "id BIGINT").option("partitionBytes", "8000").load()
        writer = frame.mapInArrow(failing, "id BIGINT").writeStream.format("penstock").options(**target)
        query = writer.options(checkpointLocation=str(tmp_path / "checkpoint"), requestBytes="500")
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="the executor is lost"):
        run()
    stored = len(records_of(url, "copies"))
    assert 0 < stored < 600
    good.touch()
    run()
    log.add(0, json_rows(10, first=600))
    run()
    assert sorted(one.json()["id"] for one in records_of(url, "copies")) == list(range(610))
