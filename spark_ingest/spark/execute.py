"""Executes tasks on Spark: one RDD partition for each task; reports progress while it runs.

Spark only schedules. Arrow and Parquet stay within the Python worker, because rows that pass through the JVM take twice
the time (docs/ingest.md, figures).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import Any

import msgspec

from spark_ingest.execution.outcomes import Report, failures_if_all, outcome_of, report_of
from spark_ingest.execution.worker import Answer, work
from spark_ingest.plan import TaskSpec, encode
from spark_ingest.protocol.failures import Outcome
from spark_ingest.spark.context import LOCAL_MASTER, local_cores, open_context

_POLL_SECONDS = 0.2


class _AllFailed(Exception):
    """Every topic has a failed task, so the other tasks are of no use."""

    def __init__(self, failed: list[Outcome]) -> None:
        super().__init__()
        self.failed = failed


class SparkExecutor:
    """Starts Spark for the first plan: a run without new records does not start it.

    Calls `progress` with the numbers of finished tasks and rows.
    """

    def __init__(
        self,
        master: str | None,
        source_url: str,
        output_url: str,
        progress: Callable[[int, int], None],
        open_context: Callable[[str | None], Any] = open_context,
    ) -> None:
        self._master = master
        self._urls = (source_url, output_url)
        self._progress = progress
        self._open_context = open_context
        self._context: Any = None

    def parallelism(self) -> int:
        """Returns the number of tasks that can run at once."""
        cores = local_cores(self._master or LOCAL_MASTER)
        return int(self._opened().defaultParallelism) if cores is None else cores

    def execute(self, specs: Sequence[TaskSpec]) -> list[Outcome]:
        """Ends early if every topic has a failed task. Raises TaskFailed for a retryable error."""
        context = self._opened()
        reports = _reports(context)
        encoded = context.parallelize([encode(spec) for spec in specs], len(specs))
        job = encoded.map(_mapper(*self._urls, reports))
        with ThreadPoolExecutor(1) as pool:
            collecting = pool.submit(job.collect)
            try:
                topics = {spec.task.topic for spec in specs}
                answers = [msgspec.json.decode(one, type=Answer) for one in self._watched(collecting, reports, topics)]
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

    def _opened(self) -> Any:
        if self._context is None:
            self._progress(0, 0)  # starting Spark takes as long as a million rows
            self._context = self._open_context(self._master)
        return self._context

    def _watched(self, collecting: Future[list[bytes]], reports: Any, topics: set[str]) -> list[bytes]:
        """Waits for the results and reports progress. Raises TaskFailed for a retryable error, _AllFailed."""
        while True:
            done: list[Report] = reports.value
            if failed := failures_if_all(done, topics):
                raise _AllFailed(failed)
            self._progress(len(done), sum(one.rows for one in done))
            try:
                return collecting.result(timeout=_POLL_SECONDS)
            except NotYet:
                continue


def _mapper(source_url: str, output_url: str, reports: Any) -> Callable[[bytes], bytes]:
    def run(spec: bytes) -> bytes:
        answer = work(spec, source_url, output_url)
        reports.add([report_of(msgspec.json.decode(spec, type=TaskSpec).task.topic, answer)])
        return encode(answer)

    return run


def _reports(context: Any) -> Any:
    """Returns an accumulator of the reports of finished tasks."""
    from pyspark.accumulators import AccumulatorParam

    class ReportList(AccumulatorParam):  # type: ignore[misc]
        def zero(self, value: list[Report]) -> list[Report]:
            return []

        def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802
            return value1 + value2

    return context.accumulator([], ReportList())
