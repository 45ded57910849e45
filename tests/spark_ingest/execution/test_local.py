"""The engine `local`: results, failures, worker processes, and the command without Spark."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import ObjectStore, StoreUnavailable, open_store
from spark_ingest.execution import local, worker
from spark_ingest.execution.local import LocalExecutor, processes_worth
from spark_ingest.execution.outcomes import TaskFailed
from spark_ingest.execution.processes import work_in_processes
from spark_ingest.plan import Recipe, TableSchema, Task, TaskSpec, encode
from spark_ingest.protocol.failures import FailedTask
from spark_ingest.protocol.results import TaskResult
from spark_ingest.source.slices import Slice
from tests.spark_ingest.jobs import Remembering, dead_letters, run_job, table_rows
from tests.spark_ingest.objects import objects_of
from tests.spark_ingest.tiered import TieredLog, json_rows, row
from tests.waiting import wait_until


def executor(source: ObjectStore, output: ObjectStore) -> LocalExecutor:
    return LocalExecutor(source, output, 2, lambda tasks, rows: None)


def two_partitions(store: ObjectStore) -> TieredLog:
    log = TieredLog(store)
    for partition in (0, 1):
        log.add(partition, [*json_rows(60, first=60 * partition), row(b"not json", 1)])
    return log


def spec(topic: str, key: str = "", records: int = 10, size_bytes: int = 100) -> TaskSpec:
    piece = Slice(0, key or f"{topic}.log", size_bytes, 0, records, 0, records)
    return TaskSpec(1, Recipe(), TableSchema("x", []), Task(0, topic, (piece,)))


def test_a_job_writes_its_table_and_its_dead_letters_in_this_process() -> None:
    log, output = two_partitions(MemoryStore()), MemoryStore()
    ran = run_job(log.store, output, bad_percent_max=50, execute=executor(log.store, output).execute)
    assert (ran.rows, len(table_rows(output)), len(dead_letters(output))) == (120, 120, 2)


def test_processes_write_what_this_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = two_partitions(open_store((tmp_path / "a store").as_uri()))
    outputs = [open_store((tmp_path / name).as_uri()) for name in ("here", "in processes")]
    listener = Remembering()
    for output, worth in zip(outputs, (local.PROCESS_RECORDS, 1), strict=True):
        monkeypatch.setattr(local, "PROCESS_RECORDS", worth)
        run_job(log.store, output, bad_percent_max=50, listener=listener, execute=executor(log.store, output).execute)
    here, there = map(objects_of, outputs)
    assert len([key for key in here if key.endswith(".parquet")]) >= 4
    assert there == here
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("records", "size_bytes", "processes"),
    [(100, 1000, 1), (250_000, 1000, 1), (250_001, 1000, 2), (100, 64 << 20, 2), (100, (64 << 20) + 1, 3)],
)
def test_a_process_is_started_for_a_second_of_work(records: int, size_bytes: int, processes: int) -> None:
    assert processes_worth([spec("a", "", records, size_bytes)]) == processes


class Unreadable(MemoryStore):
    """A store whose objects are damaged, or away."""

    def __init__(self, away: str = "") -> None:
        super().__init__()
        self.away = away
        self.asked: list[str] = []

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        self.asked.append(key)
        if key == self.away:
            raise StoreUnavailable(f"cannot get {key}")
        return bytes(100)


def test_tasks_end_early_once_every_topic_has_a_failure() -> None:
    source = Unreadable()
    outcomes = executor(source, MemoryStore()).execute([spec("a"), spec("a", "2"), spec("b"), spec("a", "3")])
    assert [one.topic for one in outcomes if isinstance(one, FailedTask)] == ["a", "a", "b"]
    assert source.asked == ["a.log", "2", "b.log"]


def test_a_failure_of_one_topic_leaves_the_others_their_results() -> None:
    log, output = two_partitions(MemoryStore()), MemoryStore()
    [key] = [key for key in log.store.objects if key.endswith(".log") and "/0/" in key]  # type: ignore[attr-defined]
    good = spec("flights", key, 61, len(log.store.get(key)))
    outcomes = executor(log.store, output).execute([spec("absent"), good])
    assert isinstance(outcomes[0], FailedTask)
    assert isinstance(outcomes[1], TaskResult)
    assert outcomes[1].rows == 60


def test_a_store_that_does_not_answer_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "ATTEMPTS_MAX", 1)
    source = Unreadable(away="b.log")
    with pytest.raises(TaskFailed, match=r"cannot get b\.log"):
        executor(source, MemoryStore()).execute([spec("a"), spec("b"), spec("c")])
    assert source.asked == ["a.log", "b.log"]


@pytest.fixture
def silent_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a store that accepts connections and never answers."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"s3://log?endpoint=http://127.0.0.1:{server.getsockname()[1]}&region=us-east-1"


def test_a_killed_worker_ends_the_run_with_one_line(silent_store: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(list, work_in_processes([encode(spec("a"))] * 2, 2, silent_store, silent_store))
        wait_until(lambda: len(multiprocessing.active_children()) == 2)
        first, _ = (one.pid for one in multiprocessing.active_children())
        assert first is not None
        os.kill(first, 9)
        with pytest.raises(TaskFailed, match=r"^a worker process was killed by SIGKILL \(if memory is short"):
            coming.result()
    assert multiprocessing.active_children() == []


def test_workers_end_when_their_answers_are_no_longer_wanted(tmp_path: Path) -> None:
    absent = (tmp_path / "absent").as_uri()
    coming = work_in_processes([encode(spec("a"))] * 5, 2, absent, absent)
    next(coming)
    coming.close()
    assert multiprocessing.active_children() == []
