"""A closed loop over any `Wire`: each connection keeps its requests in flight, without tasks or futures.

It runs in its own process (generators.py). A generator in Python can limit a fast server: the report marks such
figures, and the servers are compared by their own CPU time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import cast

from loadtests.generators.load import Outcome
from loadtests.generators.wire import Reply, Wire, WireLoad


@dataclass(frozen=True, slots=True)
class WireOutcome:
    """The outcome of a closed loop, and the records that the replies acknowledged or carried."""

    outcome: Outcome
    records: int


async def run_wire_loop(load: WireLoad, requests: int) -> WireOutcome:
    """Run until all requests have been answered. Raises OSError if a connection ends."""
    tally = _Tally(requests)
    loop = asyncio.get_running_loop()
    pipelines = []
    for number in range(load.connections):
        make_pipeline = partial(_Pipeline, load.make_wire(number), tally, load.requests_max_each)
        _, pipeline = await loop.create_connection(make_pipeline, *load.address)
        pipelines.append(pipeline)
    cpu_before, started = time.process_time(), time.perf_counter()
    try:
        for _ in range(load.depth):
            for pipeline in pipelines:
                pipeline.send_next()
        await tally.finished
    finally:
        for pipeline in pipelines:
            pipeline.close()
    return tally.outcome(time.perf_counter() - started, time.process_time() - cpu_before)


class _Tally:
    """The counts of all connections of one loop."""

    def __init__(self, requests: int) -> None:
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._sent = 0
        self._durations_us: list[int] = []
        self._bad = 0
        self._records = 0
        self._answer_bytes = 0
        self._what_went_wrong = ""

    def next_number(self) -> int | None:
        """Returns the number of the next request; None when all have been sent."""
        if self._sent == self._requests:
            return None
        self._sent += 1
        return self._sent - 1

    def count(self, reply: Reply, duration_s: float) -> None:
        if reply.error:
            self._bad += 1
            self._what_went_wrong = reply.error
        else:
            self._durations_us.append(round(duration_s * 1e6))
            self._records += reply.records
            self._answer_bytes += reply.size_bytes
        if len(self._durations_us) + self._bad == self._requests and not self.finished.done():
            self.finished.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.finished.done():
            self.finished.set_exception(error)

    def outcome(self, seconds: float, cpu_s: float) -> WireOutcome:
        return WireOutcome(
            Outcome(
                good=len(self._durations_us),
                bad=self._bad,
                seconds=seconds,
                durations_us=self._durations_us,
                answer_bytes=self._answer_bytes,
                generator_cpu_s=cpu_s,
                what_went_wrong=self._what_went_wrong,
            ),
            self._records,
        )


class _Pipeline(asyncio.Protocol):
    """One connection: sends the next request for each reply."""

    def __init__(self, wire: Wire, tally: _Tally, requests_max: int) -> None:
        self._wire = wire
        self._tally = tally
        self._requests_left = requests_max
        self._transport: asyncio.Transport | None = None
        self._sent_at: deque[float] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if hello := self._wire.hello():
            self._transport.write(hello)

    def data_received(self, data: bytes) -> None:
        replies = self._wire.take(data)
        if not replies:
            return
        now = time.perf_counter()
        for reply in replies:
            self._tally.count(reply, now - self._sent_at.popleft())
        for _ in replies:
            self.send_next()

    def send_next(self) -> None:
        number = self._tally.next_number() if self._requests_left else None
        if number is not None:
            assert self._transport is not None
            self._requests_left -= 1
            self._sent_at.append(time.perf_counter())
            self._transport.write(self._wire.request(number))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tally.fail(exc or ConnectionResetError("the server closed the connection"))
