"""The lines that make a produce safe to retry: an idempotency key, the sequence of a producer, or neither."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial

from loadtests.bench.entrants.session import IN_FLIGHT
from loadtests.bench.works import KEYED, SEQUENCED
from loadtests.host.admin_client import AdminClient

_runs = itertools.count()


def header_of(admin: AdminClient, form: str, records: int) -> Callable[[int, int], bytes] | None:
    """Returns the lines of a request by its connection and its number there. Each run has keys and producers of its
    own.
    """
    if form == KEYED:
        return partial(key_header, next(_runs))
    if form == SEQUENCED:
        return partial(sequence_headers, [_producer_id(admin) for _ in range(IN_FLIGHT)], records)
    return None


def _producer_id(admin: AdminClient) -> int:
    return int(json.loads(admin.request("POST", "/v1/producers")[1])["producer_id"])


def key_header(run: int, connection: int, number: int) -> bytes:
    return b"Idempotency-Key: %d-%d-%d\r\n" % (run, connection, number)


def sequence_headers(producers: Sequence[int], records: int, connection: int, number: int) -> bytes:
    """Returns the headers of a producer's request; its sequence is that of its first record."""
    sequence = number * records
    return b"Producer-Id: %d\r\nProducer-Epoch: 0\r\nProducer-Seq: %d\r\n" % (producers[connection], sequence)
