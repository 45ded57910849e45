"""Deliveries over a protocol of lines, against a server in this process."""

import asyncio
import contextlib
from functools import partial

from loadtests.generators.open_loop import Schedule
from loadtests.generators.records import numbered_value, numbers_in
from loadtests.generators.wire import Reply, WireDelivery
from loadtests.generators.wire_delivery import deliver_over


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
        return [Reply("" if numbers_in(line) else line.decode()) for line in lines]


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


async def test_every_record_is_delivered_and_timed():
    async with served(LineServer()) as address:
        done = await deliver_over(WireDelivery(address, LineWire, LineTail), Schedule(500, 100))
    assert (done.produced.good, done.produced.bad, done.what_went_wrong) == (100, 0, "")
    assert len(done.delivered_us) == 100


async def test_a_record_that_arrives_twice_is_a_fault():
    async with served(LineServer(copies=2)) as address:
        done = await deliver_over(WireDelivery(address, LineWire, partial(LineTail)), Schedule(500, 20))
    assert "record 0 arrived twice" in done.what_went_wrong


async def test_an_error_in_a_reply_is_counted():
    async with served(LineServer(spoil=lambda line: b"no\n" if b"0000000007" in line else line)) as address:
        done = await deliver_over(WireDelivery(address, LineWire, LineTail), Schedule(500, 20))
    assert (done.produced.good, done.produced.bad, done.produced.what_went_wrong) == (19, 1, "no")


async def test_a_consumer_that_loses_its_connection_is_a_fault():
    async def closing(reader, writer):
        with contextlib.suppress(ConnectionError):
            while (line := await reader.readline()) and line != b"follow\n":
                writer.write(line)
        writer.close()

    async with served(closing) as address:
        done = await deliver_over(WireDelivery(address, LineWire, LineTail), Schedule(500, 20))
    assert "the consumer's connection ended" in done.what_went_wrong
