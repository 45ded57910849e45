"""What a Spark worker process runs: one task, from bytes to bytes.

Failures that a person has to deal with come back as values: through Spark they would arrive as a page of Java. What
another attempt may cure (a store that does not answer) is tried again here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import msgspec

from engine.errors import EngineError
from engine.tiering.store.store import ObjectStore, open_store
from spark_ingest.plan import Order
from spark_ingest.protocol.task import TaskResult, run_task

ATTEMPTS_MAX = 3
PAUSE_SECONDS = 2.0  # times the attempt's number; the store's client has tried for longer before that


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Why a task failed, in words for a person."""

    code: str
    detail: str
    hint: str


class Done(msgspec.Struct, frozen=True, tag=True):
    result: TaskResult


Answer = Done | Failed


def work(order: bytes, source_url: str, output_url: str) -> Answer:
    """Run an encoded order."""
    return answer_to(msgspec.json.decode(order, type=Order), _store(source_url), _store(output_url))


def answer_to(
    order: Order, source: ObjectStore, output: ObjectStore, sleep: Callable[[float], None] = time.sleep
) -> Answer:
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return Done(run_task(order, source, output))
        except EngineError as error:
            if not error.retryable or attempt == ATTEMPTS_MAX:
                return Failed(error.code, error.detail, error.hint)
        sleep(PAUSE_SECONDS * attempt)
    raise AssertionError("the last attempt returns")


@lru_cache(maxsize=8)
def _store(url: str) -> ObjectStore:
    """One client per worker process, with its connections."""
    return open_store(url)
