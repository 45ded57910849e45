"""The engine `local`: runs the tasks of a plan on this machine, without Spark and without Java.

The tasks are those that Spark's workers run, so a plan gives the same files. Few records are converted in this process,
because starting a worker takes as long as converting 100,000 records.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from engine.tiering.store.store import ObjectStore
from spark_ingest.execution.outcomes import Report, failures_if_all, outcome_of, report_of
from spark_ingest.execution.processes import work_in_processes
from spark_ingest.execution.worker import Answer, run_with_retries
from spark_ingest.plan import TaskSpec, encode
from spark_ingest.protocol.failures import Outcome

# The work that is worth one more process: about a second of one core.
PROCESS_BYTES = 32 << 20
PROCESS_RECORDS = 250_000


class LocalExecutor:
    """Runs up to `workers` tasks at once, each in a process. Calls `progress` with finished tasks and rows."""

    def __init__(
        self, source: ObjectStore, output: ObjectStore, workers: int, progress: Callable[[int, int], None]
    ) -> None:
        self._source = source
        self._output = output
        self._workers = workers
        self._progress = progress

    def parallelism(self) -> int:
        """Returns the number of tasks that can run at once."""
        return self._workers

    def execute(self, specs: Sequence[TaskSpec]) -> list[Outcome]:
        """Ends early if every topic has a failed task. Raises TaskFailed for a retryable error."""
        topics = {spec.task.topic for spec in specs}
        answers: dict[int, Answer] = {}
        failed: list[Report] = []
        rows = 0
        with closing(self._answers(specs)) as coming:
            for index, answer in coming:
                answers[index] = answer
                report = report_of(specs[index].task.topic, answer)
                rows += report.rows
                if report.failure:
                    failed.append(report)
                    if failures := failures_if_all(failed, topics):
                        return failures
                self._progress(len(answers), rows)
        return [outcome_of(spec, answers[at]) for at, spec in enumerate(specs)]

    def close(self) -> None:
        """No-op: worker processes end with their plan."""

    def _answers(self, specs: Sequence[TaskSpec]) -> Generator[tuple[int, Answer], None, None]:
        processes = min(self._workers, len(specs), processes_worth(specs))
        if processes > 1:
            urls = (self._source.url, self._output.url)
            yield from work_in_processes([encode(spec) for spec in specs], processes, *urls)
            return
        from spark_ingest.execution.arrow_setup import set_up_arrow  # with PyArrow

        set_up_arrow()
        for at, spec in enumerate(specs):
            yield at, run_with_retries(spec, self._source, self._output)


def processes_worth(specs: Sequence[TaskSpec]) -> int:
    """Returns the number of processes that the bytes or the records of the tasks keep busy for a second."""
    size_bytes = sum(piece.weight_bytes for spec in specs for piece in spec.task.slices)
    records = sum(spec.task.record_range for spec in specs)
    return max(-(-size_bytes // PROCESS_BYTES), -(-records // PROCESS_RECORDS))
