"""`spark.read.format("penstock")` in a real Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.format.batch import Codec
from engine.tiering.store.store import open_store
from tests.spark_ingest.jobs import run_job
from tests.spark_ingest.tiered import TieredLog, json_rows, row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> TieredLog:
    directory: Path = tmp_path_factory.mktemp("a store")
    log = TieredLog(open_store(directory.as_uri()), batch_records=500, codec=Codec.ZSTD)
    for partition in range(3):
        log.add(partition, json_rows(4000, first=partition * 4000))
    log.add(0, [row(None, 5000, key=b"\xff\x00", headers=[("h", b"1"), ("h", None)])])
    return log


def read(spark: SparkSession, log: TieredLog, **options: object) -> DataFrame:
    given = {"store": log.store.url.replace(" ", "%20"), "topic": log.topic} | options
    return spark.read.format("penstock").options(**given).load()


def test_spark_reads_the_whole_log_in_parts(spark: SparkSession, log: TieredLog) -> None:
    frame = read(spark, log, partitionBytes=20_000)
    assert frame.rdd.getNumPartitions() > 3
    rows = frame.select("partition", "offset", "key", "value").collect()
    as_bytes = [(one[0], one[1], *(None if cell is None else bytes(cell) for cell in one[2:])) for one in rows]
    assert sorted(as_bytes) == log.records()


def test_all_columns_come_with_their_types(spark: SparkSession, log: TieredLog) -> None:
    frame = read(spark, log, startOffset=4000)
    assert frame.schema.simpleString() == (
        "struct<topic:string,partition:int,offset:bigint,timestamp:timestamp,key:binary,value:binary,"
        "headers:array<struct<name:string,value:binary>>>"
    )
    [one] = frame.collect()
    assert (one.topic, one.partition, one.offset, bytes(one.key), one.value) == ("flights", 0, 4000, b"\xff\x00", None)
    assert [(header.name, header.value) for header in one.headers] == [("h", b"1"), ("h", None)]
    assert one.timestamp.astimezone(UTC) == datetime(2013, 11, 21, 6, 23, 20, tzinfo=UTC)


def test_the_time_zone_of_the_session_moves_no_timestamp(spark: SparkSession, log: TieredLog) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        seconds = read(spark, log).selectExpr("min(unix_seconds(timestamp))").head()[0]
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert seconds == 1_385_010_000


def test_spark_computes_on_chosen_columns_and_json(spark: SparkSession, log: TieredLog) -> None:
    frame = read(spark, log, columns="value", endOffset=4000)
    ids = frame.selectExpr("from_json(cast(value AS string), 'id BIGINT').id AS id")
    assert ids.selectExpr("count(distinct id)", "max(id)").head() == (12_000, 11_999)


def test_nothing_wanted_is_an_empty_frame(spark: SparkSession, log: TieredLog) -> None:
    assert read(spark, log, startTime="2030-01-01").count() == 0


def test_a_wrong_option_is_reported_by_name(spark: SparkSession, log: TieredLog) -> None:
    with pytest.raises(Exception, match=r"unknown options \['strat'\]"):
        read(spark, log, strat=1).count()


def test_a_schema_gives_typed_columns(spark: SparkSession, log: TieredLog) -> None:
    given = {"store": log.store.url.replace(" ", "%20"), "topic": log.topic}
    ours = spark.read.format("penstock").schema("id BIGINT, _offset BIGINT").options(**given).load()
    assert ours.selectExpr("sum(id)", "count(id)", "max(_offset)").head() == (71_994_000, 12_000, 4000)
    frame = read(spark, log, schema="name STRING, id INT", columns="_partition,_extra")
    assert frame.schema.simpleString() == "struct<_partition:int,_extra:string,name:string,id:int>"
    assert frame.where("id = 4007").head() == (1, None, "n3", 4007)


def test_the_published_schema_gives_the_columns_of_the_table(
    spark: SparkSession, log: TieredLog, tmp_path: Path
) -> None:
    output = tmp_path / "an output"
    run_job(log.store, open_store(output.as_uri()), topics=log.topic)
    frame = read(spark, log, output=output.as_uri(), columns="_partition,_offset")
    table = spark.read.parquet(str(output / "tables/flights")).select(frame.columns)
    assert frame.columns == ["_partition", "_offset", "id", "name"]
    assert frame.exceptAll(table).count() == table.exceptAll(frame).count() == 0
    options = f"OPTIONS (store '{log.store.url}', topic 'flights', output '{output.as_uri()}')"
    spark.sql(f"CREATE TABLE typed_log USING penstock {options}")
    try:
        assert spark.sql("SELECT count(id) FROM typed_log WHERE name = 'n1'").head()[0] == 1715
    finally:
        spark.sql("DROP TABLE typed_log")


@pytest.mark.long
def test_filters_are_pushed_down_where_spark_allows_it(spark: SparkSession, log: TieredLog) -> None:
    """With the setting off, Spark filters by itself."""
    wanted = "partition = 1 AND offset >= 100 AND offset < 110 AND timestamp < '2013-11-21 06:08:25Z'"
    frames = {}
    for is_on in (False, True):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", is_on)
        try:
            frame = read(spark, log, partitionBytes=2000).where(wanted)
            frames[is_on] = (frame.rdd.getNumPartitions(), [one.offset for one in frame.collect()])
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert frames[True] == (1, [100, 101, 102, 103, 104])
    assert frames[False][0] > 3
    assert frames[False][1] == frames[True][1]


def test_a_table_of_the_catalog_reads_the_log(spark: SparkSession, log: TieredLog) -> None:
    """Spark adds options of its own. The options of one query have precedence."""
    options = f"OPTIONS (store '{log.store.url}', topic '{log.topic}', endOffset '4000')"
    spark.sql("DROP TABLE IF EXISTS flights_log")
    spark.sql(f"CREATE TABLE flights_log USING penstock {options} COMMENT 'the log'")
    try:
        assert spark.sql("SELECT count(*), max(offset) FROM flights_log WHERE partition < 2").head() == (8000, 3999)
        assert spark.sql("SELECT count(*) FROM flights_log WITH (endOffset='10')").head()[0] == 30
    finally:
        spark.sql("DROP TABLE flights_log")
