"""A closed loop without h2load: HTTP/1.1, one connection for every request in flight. A fallback, not the reference.

It runs in its own process (generators.py). This generator can limit a fast server; the report marks such figures. It
also sends requests that differ in a header, such as an idempotency key: those of h2load are all equal, and wrk, whose
requests can differ, drops what is in flight at its end, so that the number of stored records would be unknown.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from loadtests.generators.http1 import Connection, connect, request_bytes
from loadtests.generators.load import Load, Outcome


async def run_closed_loop(load: Load, header_of: Callable[[int, int], bytes] | None = None) -> Outcome:
    """Keeps `in_flight` requests in flight until all have been answered.

    `header_of` takes the numbers of the connection and of the request on it, and returns lines of the request's head.
    """
    parts = urlsplit(load.url)
    assert parts.hostname is not None
    assert parts.port is not None
    body = b"" if load.body_file is None else load.body_file.read_bytes()
    method = "GET" if load.body_file is None else "POST"
    requests = [request_bytes(method, parts.netloc, target, body, load.headers) for target in load.targets]
    in_flight = min(load.in_flight, load.requests)
    connections = [await connect(parts.hostname, parts.port) for _ in range(in_flight)]
    tally = _Tally()
    queue = itertools.islice(itertools.cycle(requests), load.requests)
    cpu_before, started = time.process_time(), time.perf_counter()
    try:
        await asyncio.gather(
            *(
                tally.keep_sending(connection, queue if header_of is None else _with_headers(queue, header_of, number))
                for number, connection in enumerate(connections)
            )
        )
    finally:
        for connection in connections:
            connection.close()
    return Outcome(
        good=len(tally.durations_us),
        bad=tally.bad,
        seconds=time.perf_counter() - started,
        durations_us=tally.durations_us,
        answer_bytes=tally.answer_bytes,
        generator_cpu_s=time.process_time() - cpu_before,
        what_went_wrong=tally.what_went_wrong,
    )


def _with_headers(queue: Iterator[bytes], header_of: Callable[[int, int], bytes], connection: int) -> Iterator[bytes]:
    for number, request in enumerate(queue):
        start, end, rest = request.partition(b"\r\n")
        yield start + end + header_of(connection, number) + rest


class _Tally:
    """The counts of all connections of one loop."""

    def __init__(self) -> None:
        self.durations_us: list[int] = []
        self.bad = 0
        self.answer_bytes = 0
        self.what_went_wrong = ""

    async def keep_sending(self, connection: Connection, queue: Iterator[bytes]) -> None:
        for request in queue:
            sent = time.perf_counter()
            answer = await connection.send(request)
            self.answer_bytes += len(answer.body)
            if answer.is_good:
                self.durations_us.append(round((time.perf_counter() - sent) * 1e6))
            else:
                self.bad += 1
                self.what_went_wrong = f"{answer.status}: {answer.body[:300].decode(errors='replace')}"
