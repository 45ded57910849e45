"""The parts around Spark that can be tested without it."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator

import pytest

from engine.errors import Corrupt
from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import StoreUnavailable
from spark_ingest.execution.worker import Done, Failed, run_with_retries
from spark_ingest.plan import Plan, Recipe, TableSchema, Task, TaskSpec
from spark_ingest.report import Report, format_bytes, print_summary
from spark_ingest.source.slices import Slice
from spark_ingest.spark.context import _zipped_code, local_cores
from spark_ingest.types.standard_columns import STANDARD_COLUMNS
from tests.spark_ingest.jobs import NOW_MS, run_job
from tests.spark_ingest.tiered import TieredLog, json_rows, row


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("yarn", None), ("spark://h:1", None)]
)
def test_local_cores_are_known_without_spark(master: str, cores: int | None) -> None:
    assert local_cores(master) == cores


def test_all_local_cores_are_at_least_one() -> None:
    assert (local_cores("local[*]") or 0) >= 1
    assert local_cores("local-cluster[1,1,1024]") is None


def order() -> TaskSpec:
    return TaskSpec(1, Recipe(), TableSchema("x", []), Task(0, "flights", (Slice(0, "key", 100, 0, 1, 0, 1),)))


class Failing(MemoryStore):
    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors: Iterator[Exception] = iter(errors)
        self.calls = 0

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        self.calls += 1
        raise next(self.errors)


def test_a_store_that_does_not_answer_is_asked_again() -> None:
    pauses: list[float] = []
    store = Failing(StoreUnavailable("away"), StoreUnavailable("still away"), Corrupt("broken", hint="mend it"))
    assert run_with_retries(order(), store, MemoryStore(), pauses.append) == Failed(
        "storage_failed", "broken", "mend it"
    )
    assert pauses == [2.0, 4.0]


def test_what_cannot_be_cured_is_not_tried_again() -> None:
    store = Failing(Corrupt("broken"), Corrupt("broken"))
    assert isinstance(run_with_retries(order(), store, MemoryStore(), lambda seconds: None), Failed)
    assert store.calls == 1


def test_a_task_that_ends_well_is_answered_with_its_result() -> None:
    log = TieredLog(MemoryStore())
    log.add(0, json_rows(3))
    [key] = [key for key in log.store.objects if key.endswith(".log")]  # type: ignore[attr-defined]
    size = len(log.store.get(key))
    task = Task(0, "flights", (Slice(0, key, size, 0, 3, 0, 3),))
    answer = run_with_retries(TaskSpec(1, Recipe(), TableSchema("x", []), task), log.store, MemoryStore())
    assert isinstance(answer, Done)
    assert answer.result.rows == 3


def test_the_code_for_other_machines_holds_all_packages() -> None:
    names = zipfile.ZipFile(_zipped_code()).namelist()
    assert {"engine/format/batch.py", "spark_ingest/execution/worker.py", "spark_ingest/__init__.py"} <= set(names)
    assert "penstock_codec/__init__.py" in names


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (123_456_789, "123 MB")])
def test_sizes_have_three_digits(size: int, text: str) -> None:
    assert format_bytes(size) == text


def report_of(log: TieredLog) -> Report:
    report = Report(lambda topic: Recipe(), is_quiet=False, clock=iter([0.0, 1.0, 2.5, 4.0]).__next__)
    done = run_job(log.store, MemoryStore(), bad_percent_max=50)
    for plan, is_resumed in done.plans:
        report.on_plan(plan, is_resumed=is_resumed)
    for commit in done.commits:
        report.on_commit(commit, is_ours=True)
    return report


def test_the_summary_has_rows_files_and_notable_facts(capsys: pytest.CaptureFixture[str]) -> None:
    log = TieredLog(MemoryStore())
    log.add(0, [*json_rows(8), row(b"bad")])
    report = report_of(log)
    document = report.document("default", "memory://", report.commits[0])
    assert (document["rows"], document["files"], document["dead_letters"], document["commits"]) == (8, 1, 1, [1])
    print_summary(document)
    printed = capsys.readouterr()
    assert "flights: 8 rows in 1 file, " in printed.out
    assert "  1 dead letters: not_json 1" in printed.out
    assert "commit 1, " in printed.out
    assert printed.err == "plan 1: 9 offsets of 1 topic, 310 B, in 1 task\n"


def test_a_run_that_finds_nothing_says_0_rows(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(lambda topic: Recipe(), is_quiet=False)
    print_summary(report.document("default", "memory://", None))
    assert capsys.readouterr().out.startswith("0 rows: ")


def test_a_quiet_report_writes_no_remark(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan("default", 1, "n", NOW_MS, "s", "c", Recipe(), {}, {}, ())
    Report(Recipe(payload="raw"), is_quiet=True).on_plan(plan, is_resumed=True)
    assert capsys.readouterr() == ("", "")


def test_standard_columns_are_never_taken_by_members() -> None:
    assert all(name.startswith("_") for name in STANDARD_COLUMNS)
