"""Delta tables in S3: each commit and each rewrite is one transaction, by put-if-absent, also with two drivers."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import orjson
import pytest
from deltalake import DeltaTable

from engine.tiering.store.store import open_store
from spark_ingest.tables.delta import DeltaTables
from spark_ingest.tables.publish import publish
from spark_ingest.upkeep.compact import Compaction, compact
from tests.engine.tiering import servers
from tests.spark_ingest.tables.lakes import Lake
from tests.spark_ingest.tiered import json_rows

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("serve", [servers.ministack, pytest.param(servers.moto, marks=pytest.mark.long)])
def test_commits_and_rewrites_are_transactions_of_a_table_in_s3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[[Path], AbstractContextManager[str]]
) -> None:
    for name, value in servers.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with serve(tmp_path) as endpoint:
        servers.make_bucket(endpoint, "lake")
        lake = Lake(tmp_path)
        lake.output = open_store(f"s3://lake/an output?endpoint={endpoint}&region=us-east-1")
        url = lake.output.url

        def give(_: int = 0) -> list[str | None]:
            found = publish(lake.history(), DeltaTables("default", url))
            return [None if one.error is None else str(one.error) for one in found]

        def must_give() -> None:
            assert give() == [None]

        lake.ingest()
        assert give() == give() == [None]
        lake.log.add(0, json_rows(5, first=500))
        lake.ingest()
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(give, range(4))) == [[None]] * 4
        wanted = Compaction(re.compile(".*"))
        done = compact(lake.output, "default", wanted, 0, new_id=lambda: "nonce", publish=must_give)
        assert done.replaced > done.files > 0
        options = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
        table = DeltaTable("s3://lake/an output/tables/flights", storage_options=options)
        found = sorted((one["_partition"], one["_offset"], one["id"]) for one in table.to_pyarrow_table().to_pylist())
        assert found == [(part, at, orjson.loads(value or b"")["id"]) for part, at, _, value in lake.log.records()]
        assert table.version() == 2
