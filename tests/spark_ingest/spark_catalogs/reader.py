"""Reads a table with Spark through a catalog, and prints what it found as JSON. Its Python has no Penstock.

Arguments: `iceberg` or `delta`, the directory with the tables, that of the jars, and `versions` to read these too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

CATALOG = "spark.sql.catalog"
ICEBERG = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    f"{CATALOG}.penstock": "org.apache.iceberg.spark.SparkCatalog",
    f"{CATALOG}.penstock.type": "jdbc",
}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    f"{CATALOG}.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
FACTS = (
    "count(*) AS rows",
    "sum(id) AS ids",
    "sum(place.lat) AS lats",
    "count(DISTINCT {partition}, _offset) AS positions",
    "count(_extra) AS extras",
)
OF_AN_HOUR = "_event_time >= TIMESTAMP '2013-11-21 05:00:00' AND _event_time < TIMESTAMP '2013-11-21 06:00:00'"


def main() -> None:
    kind, directory, jars = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    settings = {
        "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "spark-warehouse"),
    }
    found = (iceberg if kind == "iceberg" else delta)(directory, settings)
    print(json.dumps(found))


def iceberg(directory: Path, settings: dict[str, str]) -> dict[str, Any]:
    settings |= ICEBERG | {
        f"{CATALOG}.penstock.uri": f"jdbc:sqlite:{directory}/catalog.db",
        f"{CATALOG}.penstock.warehouse": str(directory / "warehouse"),
    }
    spark = session(settings)
    table = Reading(spark, "penstock.events.flights", "_topic_partition")
    snapshots = spark.sql(f"SELECT snapshot_id FROM {table.name}.snapshots ORDER BY committed_at").collect()
    return table.found("SHOW TABLES IN penstock.events", [one.snapshot_id for one in snapshots])


def delta(directory: Path, settings: dict[str, str]) -> dict[str, Any]:
    spark = session(settings | DELTA)
    for topic in ("flights", "rides"):
        spark.sql(f"CREATE TABLE {topic} USING delta LOCATION '{directory}/lake/tables/{topic}'")
    history = spark.sql("DESCRIBE HISTORY flights").collect()
    return Reading(spark, "flights", "_partition").found("SHOW TABLES", sorted(one.version for one in history))


def session(settings: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Reading(NamedTuple):
    """A table of the catalog, and what it calls the partition of a record."""

    spark: SparkSession
    name: str
    partition: str

    def found(self, show_tables: str, versions: list[int]) -> dict[str, Any]:
        """Return the facts of the table, of one hour of it and of its versions, and the types of its columns."""
        wanted = versions if "versions" in sys.argv[4:] else []
        return {
            "spark": self.spark.version,
            "tables": sorted(one.tableName for one in self.spark.sql(show_tables).collect()),
            "now": self.facts(),
            "hour": self.facts(f"WHERE {OF_AN_HOUR}"),
            "versions": [self.facts(f"VERSION AS OF {one}") for one in wanted],
            "types": dict(self.spark.table(self.name).dtypes),
        }

    def facts(self, more: str = "") -> dict[str, Any]:
        columns = ", ".join(FACTS).format(partition=self.partition)
        [row] = self.spark.sql(f"SELECT {columns} FROM {self.name} {more}").collect()
        return row.asDict()


if __name__ == "__main__":
    main()
