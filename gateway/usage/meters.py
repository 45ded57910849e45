"""The meters of usage: the values that are counted for a tenant and an hour, and the class of each operation.

The order of the fields is the order of the counters in files (gateway/usage/counter_file.py): add none in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

HOUR_MS = 3_600_000
PRODUCES = ("produce", "produce_to_partition", "produce_many")
READS = ("acquire_records", "fetch", "fetch_many", "group_poll", "read_table", "read_table_key", "tail_topic")


class Usage(NamedTuple):
    """The use of one tenant in one hour, or in several.

    Requests are those that were answered: with a status below 400 by their class, with 429 as refused, else as failed.
    Bytes are those of bodies, as they were sent. `records` were stored by produces. `stored_byte_seconds` are of the
    leaders, not of their replicas.
    """

    produce_requests: int = 0
    produce_bytes_in: int = 0
    produce_bytes_out: int = 0
    records: int = 0
    read_requests: int = 0
    read_bytes_in: int = 0
    read_bytes_out: int = 0
    other_requests: int = 0
    other_bytes_in: int = 0
    other_bytes_out: int = 0
    refused_requests: int = 0
    refused_bytes_in: int = 0
    refused_bytes_out: int = 0
    failed_requests: int = 0
    stored_byte_seconds: int = 0


METERS = Usage._fields
NOTHING_USED = Usage()


def total_of(usages: Iterable[Usage]) -> Usage:
    """Returns the sum of each meter."""
    return Usage(*map(sum, zip(NOTHING_USED, *usages, strict=True)))


def hour_of(time_ms: int) -> int:
    """Returns the hour since 1970 that a time is in."""
    return time_ms // HOUR_MS
