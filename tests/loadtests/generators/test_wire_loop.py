"""Closed and open loops over a protocol of lines, against a server in this process."""

import asyncio
import contextlib
from functools import partial

import pytest

from loadtests.generators.open_loop import Schedule
from loadtests.generators.records import numbered_value, numbers_in
from loadtests.generators.wire import Reply, WireDelivery, WireLoad
from loadtests.generators.wire_delivery import deliver_over
from loadtests.generators.wire_loop import run_wire_loop


class LineWire:
    """Each request is a line; the server sends it back."""

    def __init__(self, connection):
        self.rest = b""

    def hello(self):
        return b""

    def request(self, number):
        return numbered_value(number) + b"\n"

    def take(self, data):
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [Reply(1, len(line), "" if numbers_in(line) else line.decode()) for line in lines]


class LineTail:
    def hello(self):
        return b"follow\n"

    def take(self, data):
        return numbers_in(data), b""


class LineServer:
    """Sends lines back, and to followers."""

    def __init__(self, spoil=lambda line: line, copies=1):
        self.spoil, self.copies = spoil, copies
        self.followers = []
        self.lines = 0

    async def __call__(self, reader, writer):
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                if line == b"follow\n":
                    self.followers.append(writer)
                    continue
                self.lines += 1
                writer.write(self.spoil(line))
                for follower in self.followers:
                    follower.write(line * self.copies)
        writer.close()


@contextlib.asynccontextmanager
async def served(server):
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()
    finally:
        listening.close()


async def test_the_closed_loop_sends_exactly_as_many_as_it_was_asked_to():
    server = LineServer()
    async with served(server) as address:
        done = await run_wire_loop(WireLoad(address, LineWire, connections=3, depth=4), 101)
    assert server.lines == 101
    assert (done.outcome.good, done.outcome.bad, done.records, done.outcome.answer_bytes) == (101, 0, 101, 10_100)
    assert len(done.outcome.durations_us) == 101


async def test_a_fast_connection_leaves_the_rest_to_the_others_at_its_bound():
    """A consumer of NATS has a log of its own that ends."""
    counts = []

    async def one_is_slow(reader, writer):
        counts.append(0)
        place = len(counts) - 1
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                await asyncio.sleep(0.01 if place == 0 else 0)
                counts[place] += 1
                writer.write(line)
        writer.close()

    async with served(one_is_slow) as address:
        done = await run_wire_loop(WireLoad(address, LineWire, connections=2, depth=1, requests_max_each=10), 18)
    assert done.outcome.good == 18
    assert sorted(counts) == [8, 10]


async def test_an_error_in_a_reply_is_counted():
    async with served(LineServer(spoil=lambda line: b"no\n" if b"0000000007" in line else line)) as address:
        done = await run_wire_loop(WireLoad(address, LineWire, connections=2, depth=2), 20)
    assert (done.outcome.good, done.outcome.bad, done.outcome.what_went_wrong) == (19, 1, "no")


async def test_a_connection_that_ends_ends_the_loop():
    async def closing(_, writer):
        writer.close()

    async with served(closing) as address:
        with pytest.raises(OSError):
            await run_wire_loop(WireLoad(address, LineWire, connections=1, depth=1), 20)


async def test_every_record_is_delivered_and_timed():
    async with served(LineServer()) as address:
        done = await deliver_over(WireDelivery(address, LineWire, LineTail), Schedule(500, 100))
    assert (done.produced.good, done.produced.bad, done.what_went_wrong) == (100, 0, "")
    assert len(done.delivered_us) == 100


async def test_a_record_that_arrives_twice_is_a_fault():
    async with served(LineServer(copies=2)) as address:
        done = await deliver_over(WireDelivery(address, LineWire, partial(LineTail)), Schedule(500, 20))
    assert "record 0 arrived twice" in done.what_went_wrong
