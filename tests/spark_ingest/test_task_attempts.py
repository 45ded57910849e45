"""The judge of `make spark-cluster` accepts a kill only if it lost a task, which was repeated in the same run."""

from __future__ import annotations

import json

import pytest

from tests.spark_ingest.task_attempts import problems_of, read_attempts

LOST, SUCCESS = "ExecutorLostFailure", "Success"
START = '{"Event":"SparkListenerApplicationStart","App Name":"penstock ingest"}'


def ended(task: int, number: int, executor: str, reason: str) -> str:
    """Return a line of an event log of Spark 4.3, with the members that the judge reads."""
    info = {"Index": task, "Attempt": number, "Executor ID": executor, "Launch Time": 1000, "Finish Time": 3500}
    end = {"Event": "SparkListenerTaskEnd", "Stage ID": 0, "Task End Reason": {"Reason": reason}, "Task Info": info}
    return json.dumps(end)


REPEATED = [START, ended(0, 0, "0", LOST), ended(1, 0, "1", SUCCESS), ended(0, 1, "2", SUCCESS)]


def test_a_task_lost_and_repeated_in_one_application_is_proof() -> None:
    log = read_attempts(REPEATED)
    assert problems_of(log, ["0"]) == []
    assert [(one.task, one.executor, one.seconds) for one in log.lost()] == [((0, 0), "0", 2.5)]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([START, ended(0, 0, "0", SUCCESS)], "the kill of executor 0 hit no task"),
        ([START, ended(0, 0, "1", LOST), ended(0, 1, "2", SUCCESS)], "the kill of executor 0 hit no task"),
        (REPEATED[:3], "no repeat of task (0, 0), lost with 0"),
        ([*REPEATED[:3], START, REPEATED[3]], "2 applications, not one"),
    ],
)
def test_a_kill_without_a_repeat_is_no_proof(lines: list[str], problem: str) -> None:
    assert problems_of(read_attempts(lines), ["0"]) == [problem]
