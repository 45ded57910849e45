"""The first publication after `retain`: a table lists the files that are still there, and verify agrees."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from spark_ingest.output.retained import load_retained
from spark_ingest.protocol.verify import verify
from spark_ingest.tables.compare import compare_tables
from spark_ingest.tables.publish import pending, publish
from spark_ingest.tables.settings import DELTA, ICEBERG
from spark_ingest.tables.values import Tables
from spark_ingest.upkeep.retain import retain
from tests.spark_ingest.tables import test_delta
from tests.spark_ingest.tables.lakes import Lake
from tests.spark_ingest.tiered import json_rows, row
from tests.spark_ingest.upkeep.compacting import compacted


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("kind", [DELTA, ICEBERG])
def test_files_that_are_gone_are_not_published(tmp_path: Path, kind: str, compacts: bool) -> None:
    """The rows of 2013 are retired, in files of commits or of a rewrite; those of today are not."""
    lake, now_ms = Lake(tmp_path), time.time_ns() // 1_000_000
    lake.ingest()
    lake.log.add(0, json_rows(5, first=100))
    lake.ingest()
    for at in range(2):
        lake.log.add(0, [row(b'{"id":%d}' % at, timestamp=now_ms)])
        lake.ingest()
    if compacts:
        assert compacted(lake.output).replaced
    assert retain(lake.output, "default", re.compile(".*"), 2).files
    lake.log.add(0, [row(b'{"id":9}', timestamp=now_ms)])
    lake.ingest()
    history = lake.history()
    tables: Tables = test_delta.tables(lake) if kind == DELTA else lake.tables()
    assert [one.error for one in publish(history, tables)] == [None]
    listed = tables.files("flights")
    assert sum(one.rows for one in listed) == 3
    assert all(lake.output.head(one.key) for one in listed)
    covers, commits = load_retained(lake.output, "default").covers, verify(lake.output, "default")[1]
    [found] = compare_tables(pending(history, tables), commits, tables, history.effect(), covers).values()
    assert (found.problems, found.files, found.rewritten) == ((), len(listed), 0)
