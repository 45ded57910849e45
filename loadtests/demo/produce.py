"""Produces all flights over one HTTP/2 connection, a few bodies of NDJSON at a time.

It does not use the client of penstock/, which speaks HTTP/1.1: this shows HTTP/2.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import httpx

from loadtests.demo import DemoFailed
from loadtests.demo.flights import KEY, Flights

BODY_BYTES = 1_000_000
REQUESTS_AT_ONCE = 4  # streams of the one connection; more do not help a node with one shard
TIMEOUT_S = 60.0
_HEADERS = {"Content-Type": "application/x-ndjson"}


class Produced(NamedTuple):
    """The records that the node acknowledged."""

    records: int
    size_bytes: int
    requests: int
    seconds: float
    http_version: str  # of the responses


async def produce(url: str, topic: str, flights: Flights, advance: Callable[[int], None]) -> Produced:
    """Sends every flight, with its tail number as key, and waits until all are durable. Raises DemoFailed."""
    bodies = bodies_of(flights.lines)
    done: list[Produced] = []
    started = time.perf_counter()
    try:
        async with _http2(url) as http, asyncio.TaskGroup() as group:
            for _ in range(REQUESTS_AT_ONCE):
                group.create_task(_send_each(http, topic, bodies, done, advance))
    except* (httpx.HTTPError, DemoFailed) as failures:
        raise DemoFailed(f"produce: {failures.exceptions[0]}") from failures
    seconds = time.perf_counter() - started
    versions = sorted({part.http_version for part in done})
    return Produced(
        sum(part.records for part in done),
        sum(part.size_bytes for part in done),
        len(done),
        seconds,
        ", ".join(versions),
    )


def bodies_of(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines in order, joined into bodies of about BODY_BYTES."""
    body: list[bytes] = []
    size_bytes = 0
    for line in lines:
        body.append(line)
        size_bytes += len(line) + 1
        if size_bytes >= BODY_BYTES:
            yield b"\n".join(body)
            body, size_bytes = [], 0
    if body:
        yield b"\n".join(body)


def _http2(url: str) -> httpx.AsyncClient:
    """http1=False: plain TCP has no negotiation, so the connection begins with HTTP/2's preface."""
    return httpx.AsyncClient(base_url=url, http1=False, http2=True, timeout=TIMEOUT_S, trust_env=False)


async def _send_each(
    http: httpx.AsyncClient,
    topic: str,
    bodies: Iterator[bytes],
    done: list[Produced],
    advance: Callable[[int], None],
) -> None:
    for body in bodies:
        answer = await http.post(
            f"/v1/topics/{topic}/records",
            params={"acks": "all", "key_pointer": f"/{KEY}"},
            content=body,
            headers=_HEADERS,
        )
        if answer.status_code != httpx.codes.OK:
            raise DemoFailed(f"the node answered {answer.status_code}: {answer.text}")
        records = sum(result["count"] for result in answer.json()["results"])
        done.append(Produced(records, len(body), 1, 0.0, answer.http_version))
        advance(records)
