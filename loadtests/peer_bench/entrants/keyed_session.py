"""Produces with an idempotency key a request, with the sequences of a producer, or with neither."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

from loadtests.generators.bodies import Body
from loadtests.generators.generators import Generators
from loadtests.generators.http_wire import HttpProduce
from loadtests.generators.wire import Wire, WireLoad
from loadtests.host.admin_client import AdminClient
from loadtests.peer_bench.entrants.session import IN_FLIGHT
from loadtests.peer_bench.entrants.wire_session import WireSession
from loadtests.peer_bench.works import KEYED, SEQUENCED

_runs = itertools.count()


def keyed_session(
    admin: AdminClient, url: str, topic: str, body: Body, form: str, generators: Generators
) -> WireSession:
    """Returns closed loops over HTTP/1.1. Each run has keys and producers of its own."""
    return WireSession(
        generators,
        partial(_load, admin, url, topic, body, form),
        body.records,
        count=partial(admin.log_end, topic),
        close=partial(admin.delete_topic, topic),
    )


def _load(admin: AdminClient, url: str, topic: str, body: Body, form: str) -> WireLoad:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    target = f"/v1/topics/{topic}/partitions/0/records?acks=1"
    run = next(_runs)
    if form == SEQUENCED:
        producers = [_producer_id(admin) for _ in range(IN_FLIGHT)]
        make_wire = partial(_sequenced_wire, parts.netloc, target, body, producers)
    else:
        make_wire = partial(_keyed_wire, parts.netloc, target, body, run if form == KEYED else None)
    return WireLoad((parts.hostname, parts.port), make_wire, IN_FLIGHT, 1)


def _producer_id(admin: AdminClient) -> int:
    return int(json.loads(admin.request("POST", "/v1/producers")[1])["producer_id"])


def _keyed_wire(host: str, target: str, body: Body, run: int | None, connection: int) -> Wire:
    headers_of: Callable[[int], bytes] = _no_headers if run is None else partial(key_header, run, connection)
    return HttpProduce(host, target, body, headers_of)


def _sequenced_wire(host: str, target: str, body: Body, producers: Sequence[int], connection: int) -> Wire:
    return HttpProduce(host, target, body, partial(sequence_headers, producers[connection], body.records))


def _no_headers(number: int) -> bytes:
    return b""


def key_header(run: int, connection: int, number: int) -> bytes:
    return b"Idempotency-Key: %d-%d-%d\r\n" % (run, connection, number)


def sequence_headers(producer: int, records: int, number: int) -> bytes:
    """Returns the headers of a producer's request; its sequence is that of its first record."""
    sequence = number * records
    return b"Producer-Id: %d\r\nProducer-Epoch: 0\r\nProducer-Seq: %d\r\n" % (producer, sequence)
