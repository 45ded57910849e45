"""Executes tasks on Spark: one RDD partition for each task; reports progress while it runs.

Spark only schedules. Arrow and Parquet stay within the Python worker, because rows that pass through the JVM take twice
the time (docs/ingest.md, figures).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import msgspec

from spark_ingest.errors import IngestRefused
from spark_ingest.execution.outcomes import Report, TaskFailed, failures_if_all, outcome_of
from spark_ingest.execution.worker import Answer
from spark_ingest.plan import TaskSpec, encode
from spark_ingest.protocol.failures import Outcome
from spark_ingest.spark.context import LOCAL_MASTER, local_cores, open_context
from spark_ingest.spark.on_worker import WorkerNote, run_here

_POLL_SECONDS = 0.2
_POLLS_WITHOUT_EXECUTOR = 150  # 30 s
_PYTHON_ERROR = "Traceback (most recent call last):"
_CAUSE_CHARS = 500
_PACK = "install penstock-server[spark] there, or give Spark a packed environment: docs/spark.md, On a cluster"


class _AllFailed(Exception):
    """Every topic has a failed task, so the other tasks are of no use."""

    def __init__(self, failed: list[Outcome]) -> None:
        super().__init__()
        self.failed = failed


class SparkExecutor:
    """Starts Spark for the first plan: a run without new records does not start it.

    Calls `progress` with the numbers of finished tasks and rows, and `note` with what the operator should know.
    """

    def __init__(
        self,
        master: str | None,
        source_url: str,
        output_url: str,
        progress: Callable[[int, int], None],
        note: Callable[[str], None],
        open_context: Callable[[str | None], Any] = open_context,
    ) -> None:
        self._master = master
        self._urls = (source_url, output_url)
        self._progress = progress
        self._note = note
        self._noted: set[str] = set()
        self._open_context = open_context
        self._context: Any = None

    def parallelism(self) -> int:
        """Returns the number of tasks that can run at once."""
        cores = local_cores(self._master or LOCAL_MASTER)
        return int(self._ensure_context().defaultParallelism) if cores is None else cores

    def execute(self, specs: Sequence[TaskSpec]) -> list[Outcome]:
        """Ends early if every topic has a failed task.

        Raises TaskFailed for a retryable error and for one of Spark, IngestRefused if a worker lacks a library.
        """
        context = self._ensure_context()
        reports = _reports(context)
        encoded = context.parallelize([encode(spec) for spec in specs], len(specs))
        job = encoded.map(_mapper(*self._urls, reports))
        with ThreadPoolExecutor(1) as pool:
            collecting = pool.submit(job.collect)
            try:
                topics = {spec.task.topic for spec in specs}
                answers = [
                    msgspec.json.decode(answer, type=Answer) for answer in self._watch(collecting, reports, topics)
                ]
            except _AllFailed as stop:
                context.cancelAllJobs()
                return stop.failed
            except BaseException:
                context.cancelAllJobs()
                raise
        return [outcome_of(spec, answer) for spec, answer in zip(specs, answers, strict=True)]

    def close(self) -> None:
        if self._context is not None:
            self._context.stop()

    def _ensure_context(self) -> Any:
        if self._context is None:
            self._progress(0, 0)  # starting Spark takes as long as a million rows
            self._context = _start_context(self._open_context, self._master)
        return self._context

    def _watch(self, collecting: Future[list[bytes]], reports: Any, topics: set[str]) -> list[bytes]:
        """Waits for the results and reports progress.

        Raises TaskFailed for a retryable error and for one of Spark, IngestRefused, _AllFailed.
        """
        polls = 0
        while True:
            wait([collecting], timeout=_POLL_SECONDS)
            is_done, polls = collecting.done(), polls + 1
            done = self._take_reports(reports.value)
            if failed := failures_if_all(done, topics):
                raise _AllFailed(failed)
            self._progress(len(done), sum(answer.rows for answer in done))
            if is_done:
                return _result(collecting)
            if polls == _POLLS_WITHOUT_EXECUTOR and not done and not _has_executor(self._context):
                self._note(f"{self._context.master} has given no executor yet: it may have no free cores or memory")

    def _take_reports(self, reports: Sequence[Report | WorkerNote]) -> list[Report]:
        """Returns the reports of tasks; passes on what workers lack. Raises IngestRefused if that is a library."""
        for report_path in reports:
            if isinstance(report_path, WorkerNote):
                if report_path.is_fatal:
                    raise IngestRefused(report_path.text, hint=_PACK)
                if report_path.text not in self._noted:
                    self._noted.add(report_path.text)
                    self._note(f"{report_path.text}; its tasks take longer")
        return [report for report in reports if isinstance(report, Report)]


def _start_context(open_context: Callable[[str | None], Any], master: str | None) -> Any:
    """Raises IngestRefused if Spark does not start."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return open_context(master)
    except (Py4JError, PySparkException) as error:
        text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
        raise IngestRefused(f"Spark does not start: {cause_of(text)}", hint="check --master") from error


def _has_executor(context: Any) -> bool:
    return bool(context._jsc.sc().getExecutorMemoryStatus().size() > 1)  # the driver is one of them


def _result(collecting: Future[list[bytes]]) -> list[bytes]:
    """Returns the result of a job that has ended. Raises TaskFailed for an error of Spark."""
    from py4j.protocol import Py4JJavaError

    try:
        return collecting.result()
    except Py4JJavaError as error:
        raise TaskFailed(f"Spark: {cause_of(str(error.java_exception))}", hint="run again to resume") from error


def cause_of(text: str) -> str:
    """Returns one line of the message of a Java exception: the error of Python if there is one, else the first line."""
    lines = [line for line in text.splitlines() if line.strip()]
    if _PYTHON_ERROR in text:
        after = lines[next(at for at, line in enumerate(lines) if _PYTHON_ERROR in line) + 1 :]
        errors = [line for line in after if not line.startswith((" ", "\t"))]
        lines = errors or lines
    first = lines[0] if lines else "no message"
    return first[:_CAUSE_CHARS].strip()


def _mapper(source_url: str, output_url: str, reports: Any) -> Callable[[bytes], bytes]:
    return partial(run_here, source_url=source_url, output_url=output_url, reports=reports)


def _reports(context: Any) -> Any:
    """Returns an accumulator of the reports of finished tasks, and of what workers lack."""
    from pyspark.accumulators import AccumulatorParam

    class ReportList(AccumulatorParam):  # type: ignore[misc]
        def zero(self, value: list[Any]) -> list[Any]:
            return []

        def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802
            return value1 + value2

    return context.accumulator([], ReportList())
