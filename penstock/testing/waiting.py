"""Waits of tests: for records that a program under test produces."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import ProblemError

if TYPE_CHECKING:
    from penstock.records import Record
    from penstock.sync import Client

_PAUSE_S = 0.02


def wait_for_records(
    client: Client, topic: str, count: int = 1, *, filters: Sequence[str] = (), timeout_ms: int = 10_000
) -> list[Record]:
    """Returns all records of a topic, from its start on, once there are `count` of them.

    Also waits for a topic that does not exist yet. `filters` are those of `client.consume`. Each partition is in order.
    Raises TimeoutError with the values that have come, ClientError.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        records = _records(client, topic, filters)
        if len(records) >= count:
            return records
        if time.monotonic() >= deadline:
            values = [record.value for record in records]
            raise TimeoutError(f"topic {topic} has {len(records)} of {count} records after {timeout_ms} ms: {values}")
        time.sleep(_PAUSE_S)


def _records(client: Client, topic: str, filters: Sequence[str]) -> list[Record]:
    try:
        return list(client.consume(topic, follow=False, filters=filters))
    except ProblemError as problem:
        if problem.code != "unknown_topic":
            raise
        return []
