"""From produce to delivery through any `Wire`: the counterpart of delivery.py for servers without HTTP."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

from loadtests.generators.delivery import Arrivals, DeliveryOutcome, deliver_all
from loadtests.generators.open_loop import OpenLoop, Schedule
from loadtests.generators.wire import Reply, Tail, Wire, WireDelivery


async def deliver_over(delivery: WireDelivery, schedule: Schedule) -> DeliveryOutcome:
    """Produces on a schedule into an empty log while a consumer reads it."""
    event_loop = asyncio.get_running_loop()
    arrivals = Arrivals(schedule.count)
    _, consumer = await event_loop.create_connection(
        lambda: _Consumer(delivery.make_tail(), arrivals), *delivery.address
    )
    senders: list[_Sender] = []

    async def connect() -> _Sender:
        wire = delivery.make_wire(len(senders))
        _, sender = await event_loop.create_connection(lambda: _Sender(wire), *delivery.address)
        senders.append(sender)
        return sender

    try:
        loop = OpenLoop(connect, schedule, lambda number: number)
        return await deliver_all(loop, arrivals, consumer.wait_finished(), schedule)
    finally:
        consumer.close()


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

    def __init__(self, tail: Tail, arrivals: Arrivals) -> None:
        self._tail = tail
        self._arrivals = arrivals
        self._transport: asyncio.Transport | None = None
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait_finished(self) -> None:
        await self._finished

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
        self._arrivals.take(numbers)
        self._arrivals.polls += bool(answer)
        if self._arrivals.is_complete:
            self._end()
        elif answer:
            assert self._transport is not None
            self._transport.write(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("" if self._finished.done() else f"the consumer's connection ended: {exc}")

    def _end(self, problem: str = "") -> None:
        if problem:
            self._arrivals.problems.append(problem)
        if not self._finished.done():
            self._finished.set_result(None)
