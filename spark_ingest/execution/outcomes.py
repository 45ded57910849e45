"""The meaning of an answer of a task: a result, the failure of its topic, or the end of the run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.errors import EngineError
from spark_ingest.execution.worker import Answer, Failed
from spark_ingest.plan import TaskSpec
from spark_ingest.protocol.failures import FailedTask, Outcome


class TaskFailed(EngineError):
    """A task failed; nothing of its topic was committed. The text is the error of the task."""

    code = "task_failed"


class Report(NamedTuple):
    """The rows of a finished task, or its error."""

    topic: str
    rows: int
    failure: str = ""
    retryable: bool = False


def report_of(topic: str, answer: Answer) -> Report:
    if not isinstance(answer, Failed):
        return Report(topic, answer.result.rows)
    text = f"{answer.detail} ({answer.hint})" if answer.hint else answer.detail
    return Report(topic, 0, text, answer.retryable)


def failures_if_all(done: Sequence[Report], topics: set[str]) -> list[Outcome]:
    """Returns the failures if every topic has one, because the other tasks are then of no use; else an empty list.

    Raises TaskFailed for a retryable error, which is not one of the topic.
    """
    failed = [outcome for outcome in done if outcome.failure]
    for outcome in failed:
        if outcome.retryable:
            raise TaskFailed(outcome.failure)
    if not failed or {outcome.topic for outcome in failed} != topics:
        return []
    return [FailedTask(outcome.topic, TaskFailed(outcome.failure)) for outcome in failed]


def outcome_of(spec: TaskSpec, answer: Answer) -> Outcome:
    """Raises TaskFailed for a retryable error, which is not one of the topic."""
    if not isinstance(answer, Failed):
        return answer.result
    error = TaskFailed(answer.detail, hint=answer.hint)
    if answer.retryable:
        raise error
    return FailedTask(spec.task.topic, error)
