"""Executes orders on Spark: one RDD partition an order, results in any order, progress while it runs.

Spark is the scheduler and nothing else: bytes, Arrow and Parquet stay within the Python worker, because rows that
cross to the JVM and back cost twice the time (docs/ingest.md, figures).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import Any

import msgspec

from engine.errors import EngineError
from spark_ingest.plan import Order, encode
from spark_ingest.protocol.task import TaskResult
from spark_ingest.spark.context import LOCAL_MASTER, local_cores, open_context
from spark_ingest.spark.worker import Answer, Failed, work

_POLL_SECONDS = 0.2

Report = tuple[int, str]  # the rows of a task that is done, or why it failed


class TaskFailed(EngineError):
    """A task failed; nothing was committed. The text is the task's own. Mend what it says, then run again."""

    code = "task_failed"


class SparkExecutor:
    """Starts Spark when the first orders come: a run that finds nothing new does without.

    `progress` is told, again and again, how many tasks and rows are done of the orders at hand.
    """

    def __init__(
        self, master: str | None, source_url: str, output_url: str, progress: Callable[[int, int], None]
    ) -> None:
        self._master = master
        self._urls = (source_url, output_url)
        self._progress = progress
        self._context: Any = None

    def parallelism(self) -> int:
        """How many tasks can run at once."""
        cores = local_cores(self._master or LOCAL_MASTER)
        return int(self._opened().defaultParallelism) if cores is None else cores

    def execute(self, orders: Sequence[Order]) -> list[TaskResult]:
        """Raises TaskFailed as soon as any task fails."""
        context = self._opened()
        reports = _reports(context)
        encoded = context.parallelize([encode(order) for order in orders], len(orders))
        job = encoded.map(_mapper(*self._urls, reports))
        with ThreadPoolExecutor(1) as pool:
            collecting = pool.submit(job.collect)
            try:
                answers = [msgspec.json.decode(one, type=Answer) for one in self._watched(collecting, reports)]
            except BaseException:
                context.cancelAllJobs()
                raise
        results = []
        for answer in answers:
            if isinstance(answer, Failed):
                raise TaskFailed(answer.detail, hint=answer.hint)
            results.append(answer.result)
        return results

    def close(self) -> None:
        if self._context is not None:
            self._context.stop()

    def _opened(self) -> Any:
        if self._context is None:
            self._progress(0, 0)  # starting Spark takes as long as a million rows
            self._context = open_context(self._master)
        return self._context

    def _watched(self, collecting: Future[list[bytes]], reports: Any) -> list[bytes]:
        """What Spark collects, while telling how far it is; a failure does not wait for the other tasks."""
        while True:
            done: list[Report] = reports.value
            for _, failure in done:
                if failure:
                    raise TaskFailed(failure)
            self._progress(len(done), sum(rows for rows, _ in done))
            try:
                return collecting.result(timeout=_POLL_SECONDS)
            except NotYet:
                continue


def _mapper(source_url: str, output_url: str, reports: Any) -> Callable[[bytes], bytes]:
    def run(order: bytes) -> bytes:
        answer = work(order, source_url, output_url)
        if isinstance(answer, Failed):
            reports.add([(0, f"{answer.detail} ({answer.hint})" if answer.hint else answer.detail)])
        else:
            reports.add([(answer.result.rows, "")])
        return encode(answer)

    return run


def _reports(context: Any) -> Any:
    """An accumulator that gathers what tasks report when they end."""
    from pyspark.accumulators import AccumulatorParam

    class Gathering(AccumulatorParam):  # type: ignore[misc]
        def zero(self, value: list[Report]) -> list[Report]:
            return []

        def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802
            return value1 + value2

    return context.accumulator([], Gathering())
