"""The request order of a connection: requests wait for their predecessors, and never for one that will not append."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from unittest import mock

import pytest

from gateway.connections.request_order import OrderSlot, RequestOrder
from tests.scenarios.gateways import NDJSON, Answer, Gateway, in_process, over_http2

LARGE = b'"' + b"x" * 700_000 + b'"'  # decoded in a thread


class Line:
    """Requests of connections that record when they append."""

    def __init__(self) -> None:
        self.order = RequestOrder()
        self.appended: list[str] = []
        self.arrived: dict[OrderSlot, list[bool]] = {}

    def begin(self, connection: str = "a") -> OrderSlot:
        arrived = []
        slot = self.order.begin(SimpleNamespace(client=connection, has_arrived=lambda: bool(arrived)))
        self.arrived[slot] = arrived
        return slot

    def read(self, slot: OrderSlot) -> None:
        self.arrived[slot].append(True)
        slot.mark_body_received()

    async def append(self, name: str, slot: OrderSlot) -> None:
        self.read(slot)
        if not slot.is_next:
            await slot.wait()
        self.appended.append(name)
        slot.end()


@pytest.fixture
def line() -> Line:
    return Line()


async def until_quiet() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_is_alone_does_not_wait_and_leaves_nothing_behind(line):
    slot = line.begin()
    line.read(slot)
    assert slot.is_next
    slot.end()
    slot.end()
    assert line.order._queues == {}


async def test_a_later_one_waits_for_an_earlier_one_that_is_still_being_decoded(line):
    first, second, third = line.begin(), line.begin(), line.begin()
    line.read(first)
    line.arrived[second].append(True)
    waiting = [asyncio.ensure_future(line.append(name, slot)) for name, slot in (("3", third), ("2", second))]
    await asyncio.sleep(0.05)
    assert line.appended == [], "the first has its body: however long it takes, it is waited for"
    line.appended.append("1")
    first.end()
    await asyncio.gather(*waiting)
    assert line.appended == ["1", "2", "3"]
    assert line.order._queues == {}


async def test_a_body_that_arrived_and_is_not_read_yet_keeps_its_place(line):
    """Its handler may wait for its topic first."""
    first, second = line.begin(), line.begin()
    line.arrived[first].append(True)
    waiting = asyncio.ensure_future(line.append("2", second))
    await asyncio.sleep(0.05)
    await line.append("1", first)
    await waiting
    assert line.appended == ["1", "2"]


async def test_a_body_that_does_not_come_loses_its_place_and_takes_another(line):
    slow, second = line.begin(), line.begin()
    await line.append("2", second)
    third, fourth = line.begin(), line.begin()
    line.read(third)
    waiting = [asyncio.ensure_future(line.append("slow", slow))]
    await until_quiet()
    assert line.appended == ["2"], "it comes after the third now, which has its body"
    await line.append("3", third)
    await asyncio.gather(*waiting)
    await line.append("4", fourth)
    assert line.appended == ["2", "3", "slow", "4"]
    assert line.order._queues == {}


async def test_many_that_do_not_come_are_not_waited_for(line):
    slow = [line.begin() for _ in range(300)]
    waiting = asyncio.ensure_future(line.append("last", line.begin()))
    await until_quiet()
    assert waiting.done()
    for slot in slow:
        slot.end()
    assert line.order._queues == {}


async def test_one_that_fails_lets_the_next_one_through_but_not_past_those_before_it(line):
    first, failed, third = line.begin(), line.begin(), line.begin()
    line.read(first)
    line.read(failed)
    waiting = asyncio.ensure_future(line.append("3", third))
    failed.end()
    await until_quiet()
    assert line.appended == []
    first.end()
    await waiting
    assert line.order._queues == {}


async def test_who_leaves_while_waiting_holds_up_nobody(line):
    first, second, third = line.begin(), line.begin(), line.begin()
    line.read(first)
    left = asyncio.ensure_future(line.append("2", second))
    waiting = asyncio.ensure_future(line.append("3", third))
    await until_quiet()
    left.cancel()
    await until_quiet()
    second.end()
    first.end()
    await waiting
    assert line.appended == ["3"]


async def test_connections_do_not_wait_for_each_other(line):
    first = line.begin("a")
    line.read(first)
    await line.append("b", line.begin("b"))
    assert line.appended == ["b"]


def posting(gateway: Gateway, path: str, body: bytes) -> asyncio.Task[Answer]:
    return asyncio.ensure_future(gateway.send("POST", path, body, {"Content-Type": NDJSON}))


async def overtaking(tmp_path, wait_s: float, *, is_http2: bool = True) -> list[object]:
    """Return what is stored of a large body and a small one after it, if decoding waits for the small one's answer or a
    timeout.
    """
    async with in_process(tmp_path) as http1, over_http2(http1.port) as http2:
        topic, gateway = await http1.create("t"), http2 if is_http2 else http1
        in_thread, may_decode, node = http1.node.offload.in_thread, asyncio.Event(), http1.node

        async def slow_thread(work):
            await may_decode.wait()
            return await in_thread(work)

        with mock.patch.object(node.offload, "in_thread", slow_thread):
            path = f"{topic.path}/partitions/0/records"
            large = posting(gateway, path, LARGE)
            while node.bodies.held_bytes < len(LARGE) and not large.done():
                await asyncio.sleep(0.001)
            small = posting(gateway, path, b"2")
            while node.metrics.requests_in_flight.value < 2 and not small.done():
                await asyncio.sleep(0.001)
            await asyncio.wait([small], timeout=wait_s)
            may_decode.set()
            assert {(await large).status, (await small).status} == {200}
        return [len(str(value)) for value in await topic.values()]


async def test_a_small_body_does_not_overtake_a_large_one_that_is_being_decoded(tmp_path):
    assert await overtaking(tmp_path, 0.2) == [700_000, 1]


async def test_the_one_request_of_an_http1_connection_waits_for_none(tmp_path):
    """The server answers a request of such a connection before it reads the next, so two requests are of two
    connections.
    """
    assert await overtaking(tmp_path, 30, is_http2=False) == [1, 700_000]


async def test_a_line_that_is_not_kept_is_caught(tmp_path):
    """A mutant: the order is not kept."""
    with mock.patch.object(OrderSlot, "is_next", True), pytest.raises(AssertionError):
        assert await overtaking(tmp_path, 30) == [700_000, 1]
