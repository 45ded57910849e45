"""`penstock ingest finalize` marks an hour when every partition is past its end, and only once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import open_store
from spark_ingest.protocol.verify import verify
from spark_ingest.upkeep.finalize import Finalized, finalize
from spark_ingest.upkeep.retain import retain
from tests.spark_ingest.jobs import invoke, run_job
from tests.spark_ingest.killing_store import DyingStore, Killed
from tests.spark_ingest.tiered import START_MS, TieredLog, row
from tests.spark_ingest.upkeep.compacting import compacted

HOUR_MS = 3_600_000


def filled() -> tuple[MemoryStore, MemoryStore, TieredLog]:
    """Return a store and the output of a run. Partition 0 has records of 05:00 to 08:00, partition 1 up to 06:00."""
    source, output = MemoryStore(), MemoryStore(START_MS + 4 * HOUR_MS)
    log = TieredLog(source)
    log.add(0, [row(b'{"id":1}', timestamp=START_MS + hour * HOUR_MS) for hour in range(4)])
    log.add(1, [row(b'{"id":1}', timestamp=START_MS + hour * HOUR_MS) for hour in range(2)])
    run_job(source, output)
    return source, output, log


def finalized(source: Any, output: Any, now_ms: int = START_MS + 4 * HOUR_MS, **options: Any) -> Finalized:
    return finalize(source, output, "default", re.compile(".*"), now_ms=now_ms, **({"delay_ms": 0} | options))


def hours(directories: list[str]) -> list[str]:
    return [re.findall(r"hr=(\d+)", one)[0] for one in directories]


def test_an_hour_is_complete_when_the_slowest_partition_is_past_its_end() -> None:
    source, output, log = filled()
    assert hours(finalized(source, output, idle_ms=10 * HOUR_MS).marked) == ["05"]
    assert finalized(source, output, idle_ms=10 * HOUR_MS).marked == []
    log.add(1, [row(b'{"id":1}', timestamp=START_MS + 3 * HOUR_MS)])
    assert finalized(source, output, idle_ms=0).marked != [], "06:00 and 07:00: the new segment begins at 08:00"
    run_job(source, output)
    done = finalized(source, output, idle_ms=10 * HOUR_MS)
    assert (done.complete, done.watermarks) == (3, {"flights": START_MS + 3 * HOUR_MS})
    assert verify(output, "default")[0].problems == []


def test_records_that_are_not_committed_hold_back_their_hour() -> None:
    source, output, log = filled()
    log.add(1, [row(b'{"id":1}', timestamp=START_MS + HOUR_MS)])
    assert hours(finalized(source, output, idle_ms=0).marked) == ["05"]


def test_an_idle_partition_holds_back_nothing() -> None:
    source, output, _ = filled()
    assert hours(finalized(source, output, idle_ms=HOUR_MS).marked) == ["05", "06", "07"]
    assert finalized(source, output, idle_ms=HOUR_MS, delay_ms=HOUR_MS).marked == []


def test_rows_that_come_after_the_marker_are_counted() -> None:
    source, output, log = filled()
    finalized(source, output, idle_ms=0)
    log.add(0, [row(b'{"id":2}', timestamp=START_MS)])
    run_job(source, output)
    compacted(output)
    assert finalized(source, output, idle_ms=0).late == {"tables/flights/dt=2013-11-21/hr=05/": 1}


@pytest.mark.parametrize("marker", [b"", b"\xff", b"[]", b'{"job":"other"}'])
def test_a_marker_of_another_program_stays_and_counts_nothing(marker: bytes) -> None:
    source, output, _ = filled()
    key = "tables/flights/dt=2013-11-21/hr=05/_SUCCESS"
    output.put(key, marker)
    done = finalized(source, output, idle_ms=0)
    assert (done.complete, len(done.marked), done.late) == (1, 3, {})
    assert output.get(key) == marker


def test_a_dry_run_changes_nothing() -> None:
    source, output, _ = filled()
    before = dict(output.objects)
    assert len(finalized(source, output, idle_ms=0, is_dry=True).marked) == 4
    assert output.objects == before


@pytest.mark.parametrize("is_after", [False, True])
def test_whatever_operation_it_ends_at_the_next_one_finishes(is_after: bool) -> None:
    source, output, _ = filled()
    objects = dict(output.objects)
    counting = DyingStore(output, 0, is_after=False)
    finalized(source, counting, idle_ms=0)
    done = dict(output.objects)
    for at in range(1, counting.operations + 1):
        output.objects = dict(objects)
        with pytest.raises(Killed):
            finalized(source, DyingStore(output, at, is_after=is_after), idle_ms=0)
        finalized(source, output, idle_ms=0)
        assert output.objects == done, at


def test_markers_of_retired_days_go_with_their_files() -> None:
    source, output, log = filled()
    finalized(source, output, idle_ms=0)
    output.now_ms += 40 * 24 * HOUR_MS
    log.add(0, [row(b'{"id":2}', timestamp=output.now_ms)])
    run_job(source, output)
    assert retain(output, "default", re.compile(".*"), 30).left == []
    assert not any("dt=2013-11-21" in key for key in output.objects)
    assert verify(output, "default")[0].problems == []


def test_the_command_marks_and_reports(tmp_path: Path) -> None:
    source, output = open_store((tmp_path / "store").as_uri()), open_store((tmp_path / "lake").as_uri())
    TieredLog(source).add(0, [row(b'{"id":1}')])
    run_job(source, output)
    given = ["finalize", "--store", source.url, "--output", output.url]
    assert len(json.loads(invoke(*given, "--dry-run", "--json").stdout)["marked"]) == 1
    assert "1 hours marked as complete" in invoke(*given).output
    marker = json.loads(output.get("tables/flights/dt=2013-11-21/hr=05/_SUCCESS"))
    assert (marker["commit"], marker["rows"], marker["files"]) == (1, 1, 1)
