"""From produce to delivery through any `Wire`: the counterpart of delivery.py for servers without HTTP.

Every record carries its number, and its time runs from its scheduled time to its arrival at the consumer. Every number
must arrive exactly once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import cast

from loadtests.generators.delivery import DeliveryOutcome
from loadtests.generators.open_loop import GRACE_S, OpenLoop, Schedule
from loadtests.generators.wire import Reply, Tail, Wire, WireDelivery


async def deliver_over(delivery: WireDelivery, schedule: Schedule) -> DeliveryOutcome:
    """Produce on a schedule into an empty log while a consumer reads it."""
    event_loop = asyncio.get_running_loop()
    _, consumer = await event_loop.create_connection(
        lambda: _Consumer(delivery.make_tail(), schedule.count), *delivery.address
    )
    senders: list[_Sender] = []

    async def connect() -> _Sender:
        wire = delivery.make_wire(len(senders))
        _, sender = await event_loop.create_connection(lambda: _Sender(wire), *delivery.address)
        senders.append(sender)
        return sender

    loop = OpenLoop(connect, schedule, lambda number: number)
    try:
        produced = await loop.run()
        await asyncio.wait([consumer.finished], timeout=GRACE_S)
    finally:
        consumer.close()
    missing = schedule.count - produced.bad - len(consumer.arrivals)
    if missing > 0:
        consumer.problems.append(f"{missing} records had not arrived {GRACE_S:.0f} s after the last answer")
    delivered_us = [round((moment - loop.scheduled_at(n)) * 1e6) for n, moment in consumer.arrivals.items()]
    return DeliveryOutcome(produced, delivered_us, consumer.polls, "; ".join(consumer.problems[:3]))


class _Sender(asyncio.Protocol):
    """A producer's connection. `send` sends the request with a number and returns the future of its reply."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[Reply]] = deque()

    def send(self, number: int, /) -> asyncio.Future[Reply]:
        assert self._transport is not None
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._transport.write(self._wire.request(number))
        return future

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if hello := self._wire.hello():
            self._transport.write(hello)

    def data_received(self, data: bytes) -> None:
        for reply in self._wire.take(data):
            self._waiting.popleft().set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(exc or ConnectionResetError("the server closed the connection"))


class _Consumer(asyncio.Protocol):
    """Reads until every number has arrived."""

    def __init__(self, tail: Tail, expected: int) -> None:
        self._tail = tail
        self._expected = expected
        self._transport: asyncio.Transport | None = None
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.arrivals: dict[int, float] = {}
        self.polls = 0
        self.problems: list[str] = []

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._tail.hello())

    def data_received(self, data: bytes) -> None:
        try:
            numbers, answer = self._tail.take(data)
        except ValueError as error:
            self._end(str(error))
            return
        now = time.perf_counter()
        for number in numbers:
            if number in self.arrivals:
                self.problems.append(f"record {number} arrived twice")
            self.arrivals[number] = now
        self.polls += bool(answer)
        if len(self.arrivals) >= self._expected:
            self._end()
        elif answer:
            assert self._transport is not None
            self._transport.write(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("" if self.finished.done() else f"the consumer's connection ended: {exc}")

    def _end(self, problem: str = "") -> None:
        if problem:
            self.problems.append(problem)
        if not self.finished.done():
            self.finished.set_result(None)
