"""What a worker of Spark lacks is one line, and what Spark says of a failed job is one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import penstock_codec
from spark_ingest.errors import IngestRefused
from spark_ingest.spark import on_worker
from spark_ingest.spark.context import ROOT, _zipped_code, is_stopped_meanwhile
from spark_ingest.spark.execute import SparkExecutor, cause_of
from spark_ingest.spark.on_worker import WorkerNote, note_on_worker, run_here

ONE_CAUSE = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times,
most recent failure: Lost task 0.3: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1, in main
    process()
OSError: [Errno 28] No space left on device

\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:637)
Driver stacktrace:
"""


@pytest.fixture(autouse=True)
def _noticed_again() -> Iterator[None]:
    note_on_worker.cache_clear()
    yield
    note_on_worker.cache_clear()


class Reports:
    def __init__(self) -> None:
        self.value: list[Any] = []

    def add(self, some: list[Any]) -> None:
        self.value += some


def test_a_python_without_our_libraries_gets_them_named_from_the_zip_alone() -> None:
    code = f"import sys; sys.path.insert(1, {_zipped_code()!r})\n"
    code += "from spark_ingest.spark.on_worker import note_on_worker; print(note_on_worker())"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd="/", capture_output=True, text=True, check=False
    )
    assert 'lacks boto3, cramjam, crc32c, msgspec, numpy, pyarrow", is_fatal=True' in done.stdout, done.stderr


def test_a_worker_that_lacks_a_library_ends_the_run_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_worker, "LIBRARIES", ("msgspec", "a_library"))
    reports = Reports()
    assert run_here(b"any", "file:///s", "file:///o", reports) == b""
    executor = SparkExecutor(None, "file:///s", "file:///o", lambda tasks, rows: None, print)
    waiting: Future[list[bytes]] = Future()
    waiting.set_result([b""])
    with pytest.raises(IngestRefused, match=r"lacks a_library \(install penstock-server"):
        executor._watch(waiting, reports, {"flights"})


def test_a_worker_without_the_compiled_codec_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(penstock_codec, "native", None)
    monkeypatch.setattr(penstock_codec, "why_not", "it is not compiled here")
    note = note_on_worker()
    assert note is not None
    assert not note.is_fatal
    notes: list[str] = []
    executor = SparkExecutor(None, "file:///s", "file:///o", lambda tasks, rows: None, notes.append)
    assert executor._take_reports([note, WorkerNote(*note)]) == []
    [line] = notes
    assert "has no compiled penstock-codec: it is not compiled here; its tasks take longer" in line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ONE_CAUSE, "OSError: [Errno 28] No space left on device"),
        ("java.io.IOException: Cannot run program\n\tat java.base", "java.io.IOException: Cannot run program"),
        ("Traceback (most recent call last):\n  File", "Traceback (most recent call last):"),
        ("", "no message"),
        ("x" * 10_000, "x" * 500),
    ],
)
def test_the_cause_of_a_failed_job_is_one_line(text: str, line: str) -> None:
    assert cause_of(text) == line


def test_the_module_of_workers_imports_the_standard_library_only() -> None:
    code = "import sys; before = set(sys.modules); import spark_ingest.spark.on_worker;"
    code += "print({one.split('.')[0] for one in set(sys.modules) - before} - set(sys.stdlib_module_names))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'spark_ingest'}"


def test_an_error_of_a_start_that_no_master_answers_is_known() -> None:
    text = (
        'java.lang.NullPointerException: Cannot invoke "org.apache.spark.SparkEnv.driverTmpDir()" because ... is null'
    )
    assert is_stopped_meanwhile("spark://host:7077", text)
    assert not is_stopped_meanwhile("yarn", text)
    assert not is_stopped_meanwhile("spark://host:7077", "java.lang.IllegalArgumentException: bad memory")
