"""Task attempts of a Spark application: live by the REST API of its driver, and afterwards by its event log.

The event log is Spark's own record. An attempt that ended with its executor has the reason ExecutorLostFailure there.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_SUCCESS, _LOST = "Success", "ExecutorLostFailure"


@dataclass(frozen=True)
class Attempt:
    """An ended attempt of a task: `task` is the stage and the index in it, `end` is Spark's reason."""

    task: tuple[int, int]
    number: int
    executor: str
    seconds: float
    end: str


@dataclass(frozen=True)
class AttemptLog:
    """The ended attempts of the applications of some event logs."""

    applications: int
    attempts: list[Attempt]

    def lost(self) -> list[Attempt]:
        return [one for one in self.attempts if one.end == _LOST]

    def repeats(self, lost: Attempt) -> list[Attempt]:
        """Return the successful later attempts of the task on another executor."""
        return [
            one
            for one in self.attempts
            if (one.task, one.end) == (lost.task, _SUCCESS)
            and one.number > lost.number
            and one.executor != lost.executor
        ]


def read_attempts(lines: Iterable[str]) -> AttemptLog:
    applications, attempts = 0, []
    for line in lines:
        event = json.loads(line)
        applications += event["Event"] == "SparkListenerApplicationStart"
        if event["Event"] == "SparkListenerTaskEnd":
            attempts.append(_attempt(event, event["Task Info"]))
    return AttemptLog(applications, attempts)


def _attempt(event: dict[str, Any], info: dict[str, Any]) -> Attempt:
    return Attempt(
        (event["Stage ID"], info["Index"]),
        info["Attempt"],
        info["Executor ID"],
        (info["Finish Time"] - info["Launch Time"]) / 1000,
        event["Task End Reason"]["Reason"],
    )


def problems_of(log: AttemptLog, killed: Sequence[str]) -> list[str]:
    """Return what is missing for a proof that each kill hit a running task, and that Spark repeated it in one run.

    `killed` are the ids of the executors. Spark never gives an id twice.
    """
    problems = [] if log.applications == 1 else [f"{log.applications} applications, not one"]
    for executor in killed:
        lost = [one for one in log.lost() if one.executor == executor]
        if not lost:
            problems.append(f"the kill of executor {executor} hit no task")
        problems += [f"no repeat of task {one.task}, lost with {executor}" for one in lost if not log.repeats(one)]
    return problems


def executors_with_tasks(ui_port: int) -> set[str]:
    """Return the ids of the executors that have an active task now. Raises OSError if the driver does not answer."""
    [application] = _get(ui_port, "")
    executors = _get(ui_port, f"/{application['id']}/executors")
    return {one["id"] for one in executors if one["activeTasks"]}


def _get(ui_port: int, path: str) -> list[dict[str, Any]]:
    url = f"http://127.0.0.1:{ui_port}/api/v1/applications{path}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found
