"""Queries the table of flights with Spark and prints one JSON document: `python spark_report.py TABLE`.

It runs in its own process, so that the JVM ends with it. It reads the Parquet files by their path, without Penstock.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


class CarrierRow(msgspec.Struct, frozen=True):
    carrier: str
    flights: int
    mean_delay_minutes: float | None


class DayRow(msgspec.Struct, frozen=True):
    """A day of New York's calendar, which is not the table's `dt`: that is UTC."""

    year: int
    month: int
    day: int
    flights: int
    mean_delay_minutes: float | None


class Report(msgspec.Struct, frozen=True):
    """`positions` counts the distinct log positions of rows: it equals the row count if there are no duplicates."""

    rows: int
    positions: int
    hours: int
    carriers: list[CarrierRow]
    days: list[DayRow]


def report_on(flights: DataFrame) -> Report:
    flights = flights.select(
        "_partition", "_offset", "dt", "hr", "carrier", "year", "month", "day", "arr_delay"
    ).cache()
    figures = (f.count("*").alias("flights"), f.avg("arr_delay").alias("mean_delay_minutes"))
    day = ("year", "month", "day")
    return Report(
        rows=flights.count(),
        positions=flights.select("_partition", "_offset").distinct().count(),
        hours=flights.select("dt", "hr").distinct().count(),
        carriers=_rows(flights.groupBy("carrier").agg(*figures).orderBy(f.desc("flights")), CarrierRow),
        days=_rows(flights.groupBy(*day).agg(*figures).orderBy(*day), DayRow),
    )


def _rows(frame: DataFrame, kind: Any) -> list[Any]:
    return [kind(**row.asDict()) for row in frame.collect()]


def _session() -> SparkSession:
    """Configures for many small files on one machine: a few large tasks, and no listener beyond the loopback."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # In a short run the second compiler and a parallel collector cost more than they save: 86 s of CPU instead of
        # 64.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",  # otherwise one task an hour
        "spark.sql.files.openCostInBytes": "65536",  # a file here has a few kB; the default assumes 4 MB
        "spark.sql.files.minPartitionNum": "8",
        "spark.hadoop.parquet.hadoop.vectored.io.enabled": "false",  # passes every column of every file to a thread
    }
    builder: Any = SparkSession.builder.master("local[*]").appName("penstock-demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def main() -> None:
    session = _session()
    report = report_on(session.read.parquet(sys.argv[1]))
    session.stop()
    sys.stdout.buffer.write(msgspec.json.encode(report))


if __name__ == "__main__":
    main()
