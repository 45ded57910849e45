"""Files and metadata in S3: the catalog's tables are added to and read through the endpoint of `--output`."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.tiering.store.store import open_store
from spark_ingest.tables.iceberg import io_properties, open_catalog_of
from spark_ingest.tables.settings import TableSettings
from tests.engine.tiering import servers
from tests.spark_ingest.tables.lakes import Lake

pytestmark = pytest.mark.e2e


def test_a_table_in_s3_is_published_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in servers.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with servers.ministack(tmp_path) as endpoint:
        servers.make_bucket(endpoint, "lake")
        lake = Lake(tmp_path)
        lake.output = open_store(f"s3://lake/an output?endpoint={endpoint}&region=us-east-1")
        lake.settings = TableSettings(lake.settings.catalog, "events", warehouse="s3://lake/warehouse")
        lake.ingest()
        [done] = lake.publish()
        assert (done.error, done.commits) == (None, [1])
        catalog = open_catalog_of(lake.settings, io_properties(lake.output.url))
        scan = catalog.load_table(("events", "flights")).scan()
        assert scan.to_arrow().num_rows == 30
        [task, *_] = scan.plan_files()
        assert task.file.file_path.startswith("s3://lake/an output/tables/flights/dt=2013-11-21/hr=")
        assert {one.key for one in lake.tables().files("flights")} == {
            one.key for one in lake.output.list("tables/flights/")
        }
