"""Limits of a run: it ends between plans, each record comes once, and the next run goes on."""

from __future__ import annotations

import pytest

from engine.testing.memory_store import MemoryStore
from spark_ingest.protocol.planner import AGED
from spark_ingest.run_limits import Budget, RunLimits
from tests.spark_ingest.jobs import NOW_MS, run_job, table_rows
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows


def log_of(records: int) -> TieredLog:
    log = TieredLog(MemoryStore())
    for partition in (0, 1):
        log.add(partition, json_rows(records // 2))
    return log


def test_runs_take_so_many_records_until_all_are_taken() -> None:
    log, output = log_of(100), MemoryStore()
    runs = [run_job(log.store, output, run_limits=RunLimits(records=40), task_bytes=1 << 20) for _ in range(4)]
    assert [one.rows for one in runs] == [40, 40, 20, 0]
    assert [one.is_limited for one in runs] == [True, True, False, False]
    places = [(one["_partition"], one["_offset"]) for one in table_rows(output)]
    assert places == [(partition, offset) for partition in (0, 1) for offset in range(50)]


def test_runs_take_about_so_many_bytes() -> None:
    log, output = log_of(400), MemoryStore()
    rows = []
    while not rows or rows[-1]:
        rows.append(run_job(log.store, output, run_limits=RunLimits(size_bytes=4000)).rows)
    assert (sum(rows), len(rows) > 3) == (400, True)


def test_a_plan_that_is_resumed_counts_and_is_not_cut() -> None:
    log, output = log_of(100), MemoryStore()

    def killed(_: object) -> list[object]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(log.store, output, execute=killed)  # type: ignore[arg-type]
    again = run_job(log.store, output, run_limits=RunLimits(records=10))
    assert (again.rows, again.is_limited) == (100, True)


def test_the_clock_ends_a_run_before_its_next_plan() -> None:
    assert not RunLimits(seconds=5).begin(1000).is_spent(5999)
    assert RunLimits(seconds=5).begin(1000).is_spent(6000)
    assert not RunLimits().begin(0).is_spent(1 << 60)
    assert Budget(None, 0, None).is_spent(0)


def segments(partition: int, log: TieredLog, *begins_s: int) -> None:
    """Add segments of 10 records, a second apart, from these seconds on."""
    for begin in begins_s:
        log.add(partition, json_rows(10, first=begin))


def test_a_run_takes_a_span_of_each_partition_so_that_they_go_on_together() -> None:
    log, output = TieredLog(MemoryStore()), MemoryStore()
    segments(0, log, 0, 50, 100, 150, 200)
    segments(1, log, 0, 5000)
    limits = RunLimits(span_ms=100_000)
    runs = [run_job(log.store, output, run_limits=limits) for _ in range(4)]
    assert [one.rows for one in runs] == [30 + 10, 20 + 10, 0, 0]
    assert [one.is_limited for one in runs] == [True, False, False, False]
    assert len({(one["_partition"], one["_offset"]) for one in table_rows(output)}) == 70


def test_a_span_shorter_than_a_segment_takes_whole_segments() -> None:
    log, output = TieredLog(MemoryStore()), MemoryStore()
    segments(0, log, 0, 50)
    assert [run_job(log.store, output, run_limits=RunLimits(span_ms=1)).rows for _ in range(3)] == [10, 10, 0]


def test_a_new_topic_starts_at_the_first_segment_with_records_of_an_age() -> None:
    log, output = TieredLog(MemoryStore()), MemoryStore()
    segments(0, log, 0, 50, 100, 30, 150)  # 30: late records behind newer ones are taken
    age = {"start": AGED, "start_age_ms": NOW_MS - (START_MS + 55_000)}
    done = run_job(log.store, output, **age)
    assert (done.rows, [commit.lost for commit in done.commits]) == (40, [[]])
    assert [commit.unseen for commit in done.commits] == [{}]
    segments(0, log, 40)  # committed before: its position counts, and no age
    segments(1, log, 0, 10)  # it was not there before: no age counts
    assert run_job(log.store, output, **age).rows == 30
    segments(1, log, 20)
    assert run_job(log.store, output, **age).rows == 10
    assert [one["_offset"] for one in table_rows(output)] == [*range(10, 60), *range(30)]
