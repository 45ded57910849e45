"""Event streams wait for slow clients. The test replaces connections by numbers that it changes."""

import asyncio

import pytest

from gateway.connections.send_buffers import ROOM_BYTES, ROOM_BYTES_LEAST, SendBuffers


class Connection:
    """The server's view of a connection: bytes that the kernel has not accepted."""

    def __init__(self):
        self.unsent_bytes = 0
        self.is_aborted = False
        self._moved = asyncio.Event()

    async def wait_progress(self):
        self._moved.clear()
        await self._moved.wait()

    def take(self, size_bytes):
        self.unsent_bytes -= size_bytes
        self._moved.set()

    def abort(self):
        self.is_aborted = True


async def until_it_waits(task):
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()


async def test_a_client_that_is_behind_is_waited_for():
    everyone, connection = SendBuffers(2**30), Connection()
    everyone.begin(connection)
    await everyone.wait_room(connection, ROOM_BYTES * 5)
    connection.unsent_bytes = ROOM_BYTES
    waiting = asyncio.create_task(everyone.wait_room(connection, 1))
    await until_it_waits(waiting)
    connection.take(100)
    await waiting


async def test_when_all_have_too_much_each_may_have_little():
    everyone, one, other = SendBuffers(bytes_max=ROOM_BYTES), Connection(), Connection()
    for connection in (one, other):
        everyone.begin(connection)
    one.unsent_bytes, other.unsent_bytes = ROOM_BYTES, 2 * ROOM_BYTES_LEAST
    waiting = asyncio.create_task(everyone.wait_room(other, 1))
    await until_it_waits(waiting)
    other.take(2 * ROOM_BYTES_LEAST - 1)
    await waiting
    everyone.end(one)
    assert everyone.size_bytes == 1


async def test_a_node_that_stops_waits_for_nobody():
    everyone, connection = SendBuffers(2**30), Connection()
    everyone.begin(connection)
    connection.unsent_bytes = ROOM_BYTES
    everyone.close()
    assert connection.is_aborted
    with pytest.raises(ConnectionResetError):
        await everyone.wait_room(connection, 1)
