"""The records of the works, the same for every server."""

from __future__ import annotations

import time
from functools import cache

from loadtests.bench.works import Work
from loadtests.generators.bodies import batch_body, json_values


@cache
def values_of(work: Work) -> tuple[bytes, ...]:
    """Returns the records of a request."""
    return tuple(json_values(work.records_each, work.record_bytes))


@cache
def batch_of(work: Work) -> bytes:
    """Returns the records of a request as a record batch of Kafka's format 2: what Kafka and Penstock store."""
    return batch_body(values_of(work), _now_ms()).data


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
