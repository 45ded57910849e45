"""A log, an output and an Iceberg catalog in one directory; and catalogs whose client is killed or gets no reply."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from engine.tiering.store.store import ObjectStore, open_store
from spark_ingest.protocol.history import History
from spark_ingest.spark.context import ROOT
from spark_ingest.tables.iceberg import IcebergTables, open_catalog_of
from spark_ingest.tables.publish import Publication, publish
from spark_ingest.tables.settings import TableSettings
from tests.spark_ingest.jobs import Remembering, run_job
from tests.spark_ingest.killing_store import Killed
from tests.spark_ingest.tiered import TieredLog, json_rows


class Lake:
    """Two partitions of a topic, which are ingested by jobs of the test's process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.source: ObjectStore = open_store((directory / "a store").as_uri())
        self.output: ObjectStore = open_store((directory / "an output").as_uri())
        self.settings = TableSettings(
            f"sqlite:///{directory}/catalog.db", "events", warehouse=f"file://{directory}/a warehouse"
        )
        self.log = TieredLog(self.source)
        self.log.add(0, json_rows(20))
        self.log.add(1, json_rows(10, first=7_000))

    def ingest(self, **options: Any) -> Remembering:
        return run_job(self.source, self.output, task_bytes=1 << 20, **options)

    def history(self, job: str = "default") -> History:
        return History(self.output, job)

    def catalog(self) -> Any:
        return open_catalog_of(self.settings, {})

    def tables(self, catalog: Callable[[], Any] | None = None, job: str = "default") -> IcebergTables:
        return IcebergTables(self.settings, job, self.output.url, catalog)

    def publish(self, catalog: Callable[[], Any] | None = None) -> list[Publication]:
        return publish(self.history(), self.tables(catalog))

    def table(self, name: str = "flights") -> Any:
        return self.catalog().load_table(("events", name))

    def scan(self, name: str = "flights") -> pa.Table:
        return self.table(name).scan().to_arrow()

    def commits_of_snapshots(self) -> list[str]:
        return [one.summary["penstock.commit"] for one in self.table().metadata.snapshots]

    def assert_table_is_log(self) -> None:
        """Assert that the table has each record of the log once, in one snapshot for each commit."""
        rows = self.scan().select(["_topic_partition", "_offset", "id"]).to_pylist()
        found = sorted((one["_topic_partition"], one["_offset"], one["id"]) for one in rows)
        log = [(part, at, orjson.loads(value or b"")["id"]) for part, at, _, value in self.log.records()]
        assert found == log
        assert self.commits_of_snapshots() == [str(one.number) for one in self.history().commits() if one.rows]


class FaultyCatalog:
    """A catalog that kills its client, or loses the reply, at the n-th commit of a table. Counts from 1."""

    def __init__(self, inner: Any, at: int, *, is_after: bool, error: BaseException | None = None) -> None:
        self._inner, self._at, self._is_after = inner, at, is_after
        self._error = error or Killed("commit")
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_table_transaction(self, *arguments: Any, **more: Any) -> Any:
        transaction = self._inner.create_table_transaction(*arguments, **more)
        transaction._table.catalog = self
        return transaction

    def commit_table(self, *arguments: Any) -> Any:
        self.commits += 1
        if self.commits == self._at and not self._is_after:
            raise self._error
        done = self._inner.commit_table(*arguments)
        if self.commits == self._at:
            raise self._error
        return done


def counted_by_duckdb(files: list[str]) -> list[int]:
    """Return the number of rows of Parquet files, and the sum of their ids."""
    program = [sys.executable, "-m", "tests.spark_ingest.tables.duckdb_count"]
    ran = subprocess.run([*program, *files], cwd=ROOT, capture_output=True, check=True)
    return [int(one) for one in ran.stdout.split()]
