"""`spark.readStream.format("penstock")` in a real Spark: batches, restarts from the checkpoint, losses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.tiering.manifest.deleted_topic import mark_deleted
from engine.tiering.store.store import open_store
from tests.spark_ingest.tiered import CLUSTER, TOPIC_ID, TieredLog, json_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Batches = dict[int, list[tuple[int, int, int]]]


@pytest.fixture
def log(tmp_path: Path) -> TieredLog:
    log = TieredLog(open_store((tmp_path / "a store").as_uri()), batch_records=50)
    for partition in range(2):
        log.add(partition, json_rows(200, first=partition * 200))
    return log


class Collector:
    """Collects the rows of each batch; fails once a batch has been collected, if it is to."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.batches: Batches = {}
        self._fails_at = fails_at

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = sorted((one["_partition"], one["_offset"], one["id"]) for one in frame.collect())
        if number == self._fails_at:
            raise RuntimeError("the driver stops here")


def run(spark: SparkSession, log: TieredLog, checkpoint: Path, sink: Callable[..., None], **options: object) -> Any:
    """Run a query until it has everything that is in the store now, and return its progress."""
    given = {"store": log.store.url.replace(" ", "%20"), "topic": log.topic, "columns": "_partition,_offset"}
    source = spark.readStream.format("penstock").options(**given, schema="id BIGINT", **options)
    query = source.load().writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    started = query.trigger(availableNow=True).start()
    started.awaitTermination()
    return started.lastProgress


def test_a_query_that_fails_replays_its_batch_and_reads_every_record_once(
    spark: SparkSession, log: TieredLog, tmp_path: Path
) -> None:
    failing, going = Collector(fails_at=2), Collector()
    with pytest.raises(Exception, match="the driver stops here"):
        run(spark, log, tmp_path / "checkpoint", failing, maxRecordsPerBatch=150)
    log.add(0, json_rows(100, first=400))
    run(spark, log, tmp_path / "checkpoint", going, maxRecordsPerBatch=300)
    assert going.batches[2] == failing.batches[2]
    batches = failing.batches | going.batches
    assert [len(batches[number]) for number in range(3)] == [0, 150, 150]
    rows = [row for number in sorted(batches) for row in batches[number]]
    assert len(rows) == len(set(rows)) == 500
    assert sorted(one[2] for one in rows) == list(range(500))


@pytest.mark.long
def test_records_that_retention_took_fail_the_query_or_are_counted_in_its_progress(
    spark: SparkSession, log: TieredLog, tmp_path: Path
) -> None:
    first, rest = Collector(), Collector()
    run(spark, log, tmp_path / "checkpoint", first)
    log.add(0, json_rows(60, first=400))
    log.raise_log_start(0, 230)
    with pytest.raises(Exception, match="flights partition 0: 30 records, offsets 200 to 229"):
        run(spark, log, tmp_path / "checkpoint", rest)
    progress = run(spark, log, tmp_path / "checkpoint", rest, onLost="skip")
    assert [row[2] for number in sorted(rest.batches) for row in rest.batches[number]] == list(range(430, 460))
    assert '"retention": 30' in str(progress.sources[0].endOffset).replace('":', '": ').replace("  ", " ")


def recreated(log: TieredLog, topic_id: str) -> TieredLog:
    """Delete the topic as a node does it, and return the log of a new one of the same name."""
    mark_deleted(log.store, CLUSTER, log.topic, log.topic_id, len(log.ends))
    for one in list(log.store.list(f"{CLUSTER}/{log.topic}/")):
        log.store.delete(one.key)
    return TieredLog(log.store, topic_id=topic_id, batch_records=50)


def test_a_topic_that_was_created_again_is_read_from_its_beginning_with_an_old_checkpoint(
    spark: SparkSession, log: TieredLog, tmp_path: Path
) -> None:
    """A checkpoint has the topic's id beside its offsets: the same offsets of the new topic are other records."""
    old, new = Collector(), Collector()
    run(spark, log, tmp_path / "checkpoint", old)
    log.add(1, json_rows(30, first=400))  # not read before the topic is deleted
    log = recreated(log, "b" * 32)
    log.add(0, json_rows(250, first=1000))  # past the position of the old topic, which is 200 in both partitions
    log.add(1, json_rows(50, first=2000))
    with pytest.raises(Exception, match=f"partition 1: 30 records, offsets 200 to 229 .topic {TOPIC_ID} was deleted"):
        run(spark, log, tmp_path / "checkpoint", new)
    assert not any(new.batches.values())
    progress = run(spark, log, tmp_path / "checkpoint", new, onLost="skip")
    rows = [row for number in sorted(new.batches) for row in new.batches[number]]
    assert sorted(rows) == [(0, at, 1000 + at) for at in range(250)] + [(1, at, 2000 + at) for at in range(50)]
    assert '"topic_deleted": 30' in str(progress.sources[0].endOffset).replace('":', '": ').replace("  ", " ")
