"""The records of the works, the same for every server, and functions of a request's number that can be pickled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache

from loadtests.generators.bodies import batch_body, json_values
from loadtests.generators.records import numbered_value
from loadtests.peer_bench.works import Work


@cache
def values_of(work: Work) -> tuple[bytes, ...]:
    """Returns the records of a request."""
    return tuple(json_values(work.records_each, work.record_bytes))


@cache
def batch_of(work: Work) -> bytes:
    """Returns the records of a request as a record batch of Kafka's format 2: what Kafka and Penstock store."""
    return batch_body(values_of(work), _now_ms()).data


def constant_batch(batch: bytes, number: int) -> bytes:
    return batch


def numbered_batch(number: int) -> bytes:
    """Returns a batch of the one record with this number."""
    return batch_body([numbered_value(number)], _now_ms()).data


def constant_values(values: Sequence[bytes], number: int) -> Sequence[bytes]:
    return values


def numbered_values(number: int) -> Sequence[bytes]:
    return [numbered_value(number)]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
