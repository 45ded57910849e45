"""Runs one task, in a worker process of Spark or of this machine.

Returns errors as values, because Spark would wrap an exception in a Java stack trace. Retries retryable errors, such as
a store that does not answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import msgspec

from engine.errors import EngineError
from engine.tiering.store.store import ObjectStore, open_store
from spark_ingest.plan import TaskSpec
from spark_ingest.protocol.results import TaskResult

ATTEMPTS_MAX = 3
PAUSE_SECONDS = 2.0  # times the attempt; the store's client has retried before


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The error of a failed task."""

    code: str
    detail: str
    hint: str
    retryable: bool = False


class Done(msgspec.Struct, frozen=True, tag=True):
    result: TaskResult


Answer = Done | Failed


def work(spec: bytes, source_url: str, output_url: str) -> Answer:
    """Run an encoded TaskSpec."""
    return run_with_retries(msgspec.json.decode(spec, type=TaskSpec), _store(source_url), _store(output_url))


def run_with_retries(
    spec: TaskSpec, source: ObjectStore, output: ObjectStore, sleep: Callable[[float], None] = time.sleep
) -> Answer:
    from spark_ingest.protocol.task import run_task  # with PyArrow, which a run without new records does not need

    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return Done(run_task(spec, source, output))
        except EngineError as error:
            if not error.retryable or attempt == ATTEMPTS_MAX:
                return Failed(error.code, error.detail, error.hint, error.retryable)
        sleep(PAUSE_SECONDS * attempt)
    raise AssertionError("the last attempt returns")


@lru_cache(maxsize=8)
def _store(url: str) -> ObjectStore:
    """Opens one client for each worker process, so that it reuses connections."""
    return open_store(url)
