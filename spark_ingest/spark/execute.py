"""Executes tasks on Spark: one RDD partition for each task; reports progress while it runs.

Spark only schedules. Arrow and Parquet stay within the Python worker, because rows that pass through the JVM take twice
the time (docs/ingest.md, figures).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import Any, NamedTuple

import msgspec

from engine.errors import EngineError
from spark_ingest.plan import TaskSpec, encode
from spark_ingest.protocol.failures import FailedTask, Outcome
from spark_ingest.spark.context import LOCAL_MASTER, local_cores, open_context
from spark_ingest.spark.worker import Answer, Failed, work

_POLL_SECONDS = 0.2


class Report(NamedTuple):
    """The rows of a finished task, or its error."""

    topic: str
    rows: int
    failure: str = ""
    retryable: bool = False


class TaskFailed(EngineError):
    """A task failed; nothing of its topic was committed. The text is the error of the task."""

    code = "task_failed"


class _AllFailed(Exception):
    """Every topic has a failed task, so the other tasks are of no use."""

    def __init__(self, failed: list[Report]) -> None:
        super().__init__()
        self.failed = failed


class SparkExecutor:
    """Starts Spark for the first plan: a run without new records does not start it.

    Calls `progress` with the numbers of finished tasks and rows.
    """

    def __init__(
        self, master: str | None, source_url: str, output_url: str, progress: Callable[[int, int], None]
    ) -> None:
        self._master = master
        self._urls = (source_url, output_url)
        self._progress = progress
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
                return [FailedTask(one.topic, TaskFailed(one.failure)) for one in stop.failed]
            except BaseException:
                context.cancelAllJobs()
                raise
        return [_outcome(spec, answer) for spec, answer in zip(specs, answers, strict=True)]

    def close(self) -> None:
        if self._context is not None:
            self._context.stop()

    def _opened(self) -> Any:
        if self._context is None:
            self._progress(0, 0)  # starting Spark takes as long as a million rows
            self._context = open_context(self._master)
        return self._context

    def _watched(self, collecting: Future[list[bytes]], reports: Any, topics: set[str]) -> list[bytes]:
        """Waits for the results and reports progress. Raises TaskFailed for a retryable error, _AllFailed."""
        while True:
            done: list[Report] = reports.value
            failed = [one for one in done if one.failure]
            if away := [one for one in failed if one.retryable]:
                raise TaskFailed(away[0].failure)
            if failed and {one.topic for one in failed} == topics:
                raise _AllFailed(failed)
            self._progress(len(done), sum(one.rows for one in done))
            try:
                return collecting.result(timeout=_POLL_SECONDS)
            except NotYet:
                continue


def _mapper(source_url: str, output_url: str, reports: Any) -> Callable[[bytes], bytes]:
    def run(spec: bytes) -> bytes:
        answer = work(spec, source_url, output_url)
        topic = msgspec.json.decode(spec, type=TaskSpec).task.topic
        if isinstance(answer, Failed):
            text = f"{answer.detail} ({answer.hint})" if answer.hint else answer.detail
            reports.add([Report(topic, 0, text, answer.retryable)])
        else:
            reports.add([Report(topic, answer.result.rows)])
        return encode(answer)

    return run


def _outcome(spec: TaskSpec, answer: Answer) -> Outcome:
    """Raises TaskFailed for a retryable error, which is not one of the topic."""
    if not isinstance(answer, Failed):
        return answer.result
    error = TaskFailed(answer.detail, hint=answer.hint)
    if answer.retryable:
        raise error
    return FailedTask(spec.task.topic, error)


def _reports(context: Any) -> Any:
    """Returns an accumulator of the reports of finished tasks."""
    from pyspark.accumulators import AccumulatorParam

    class ReportList(AccumulatorParam):  # type: ignore[misc]
        def zero(self, value: list[Report]) -> list[Report]:
            return []

        def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802
            return value1 + value2

    return context.accumulator([], ReportList())
