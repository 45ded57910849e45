"""Commits reach tables of a REST catalog once, also if its replies get lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_ingest.tables.settings import TableSettings
from tests.spark_ingest.tables.lakes import Lake
from tests.spark_ingest.tables.rest_catalog import RestCatalog, served
from tests.spark_ingest.tiered import json_rows


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def rest(lake: Lake) -> Iterator[RestCatalog]:
    with served(lake.catalog()) as rest:
        lake.settings = TableSettings(rest.url, "events")
        yield rest


def test_a_table_is_created_and_extended_through_rest(lake: Lake, rest: RestCatalog) -> None:
    lake.ingest()
    [first] = lake.publish()
    lake.log.add(0, json_rows(5, first=50))
    lake.ingest()
    [second] = lake.publish()
    assert (first.error, first.commits, second.error, second.commits) == (None, [1], None, [2])
    lake.assert_table_is_log()
    assert [str(one.transform) for one in lake.table().spec().fields] == ["hour"]
    assert rest.commits == 2


def test_a_lost_reply_of_a_rest_catalog_adds_nothing_twice(lake: Lake, rest: RestCatalog) -> None:
    rest.lost = {1, 2}
    lake.ingest()
    lake.log.add(0, json_rows(5, first=50))
    lake.ingest()
    [done] = lake.publish()
    assert done.error is None
    lake.assert_table_is_log()
    assert rest.commits == 2
