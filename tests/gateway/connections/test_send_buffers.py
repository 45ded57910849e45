"""What a client has yet to take: counted with the kernel's word, over real connections."""

import asyncio
import contextlib
import os
import socket
import struct

import pytest

from gateway.connections import send_buffers as unread
from gateway.connections.kernel_sockets import KernelSockets
from gateway.connections.send_buffers import BLIND_BYTES_MAX, ROOM_BYTES, Unread

PIECE = b"x" * 65536


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request):
    """Our end and the client's end of a connection."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        listener = socket.create_server((request.param, 0), family=family)
    except OSError:
        pytest.skip(f"no {request.param} here")
    client = socket.create_connection(listener.getsockname()[:2])
    ours, _ = listener.accept()
    with listener, client, ours:
        yield ours, client


def names(pair):
    ours, _ = pair
    return tuple(
        f"[{a[0]}]:{a[1]}" if ":" in a[0] else f"{a[0]}:{a[1]}" for a in (ours.getsockname(), ours.getpeername())
    )


async def fill(connection, ours, total):
    """Send so much, as Granian would in the background; returns how much was let through within a moment."""
    sent = 0
    loop = asyncio.get_running_loop()
    ours.setblocking(False)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            while sent < total:
                await connection.room(len(PIECE))
                sent += len(PIECE)
                await loop.sock_sendall(ours, PIECE)
    return sent


async def test_who_reads_nothing_is_sent_no_more_than_its_room(pair):
    everyone = Unread(2**30)
    connection = everyone.begin(*names(pair))
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * 1024 * 1024)
    assert ROOM_BYTES <= await fill(connection, pair[0], 64 * 1024 * 1024) < 16 * ROOM_BYTES
    everyone.end(connection)
    assert (everyone.size_bytes, repr(everyone)) == (0, "Unread(connections=0, size_bytes=0)")


async def test_who_reads_gets_everything(pair):
    everyone = Unread(2**30)
    connection = everyone.begin(*names(pair))
    total = 32 * 1024 * 1024

    def read():
        left = total
        while left:
            left -= len(pair[1].recv(1024 * 1024))

    reading = asyncio.create_task(asyncio.to_thread(read))
    sent = 0
    while sent < total:
        sent += await fill(connection, pair[0], total - sent)
    await reading


async def test_when_all_have_too_much_each_may_have_little(pair):
    everyone = Unread(bytes_max=ROOM_BYTES)
    connection = everyone.begin(*names(pair))
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    pair[1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    everyone.size_bytes += 2 * ROOM_BYTES
    for _ in range(2):
        await connection.room(len(PIECE))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await connection.room(len(PIECE))
    everyone.size_bytes -= 2 * ROOM_BYTES
    async with asyncio.timeout(5):
        await connection.room(len(PIECE))


async def test_a_client_that_has_left_is_noticed(pair):
    everyone = Unread(2**30)
    connection = everyone.begin("127.0.0.1:1", "127.0.0.1:2")
    with pytest.raises(ConnectionResetError):
        await fill(connection, pair[0], 10**9)


async def test_a_connection_that_has_ended_is_not_taken_for_its_listener(pair):
    """The kernel answers with the listener then, and to end that would end the service."""
    ours, client = pair
    server, name = names(pair)
    kernel = KernelSockets()
    assert kernel.find(server, name).inode == os.fstat(ours.fileno()).st_ino
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()  # by a reset: nothing is left of it
    async with asyncio.timeout(5):
        while kernel.find(server, name) is not None:
            await asyncio.sleep(0.01)
    kernel.shut_down([(server, name)])
    with socket.create_connection(parse(server)):
        pass


def parse(address):
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def test_cutting_ends_the_connection_for_both(pair):
    everyone = Unread(2**30)
    connection = everyone.begin(*names(pair))
    connection.cut()
    pair[1].settimeout(5)
    assert pair[1].recv(1) == b""


async def test_where_the_kernel_tells_nothing_a_stream_has_a_bounded_length(pair, monkeypatch):
    monkeypatch.setattr(unread.KernelSockets, "is_known", False)
    everyone = Unread(2**30)
    connection = everyone.begin(*names(pair))
    for _ in range(BLIND_BYTES_MAX // len(PIECE)):
        await connection.room(len(PIECE))
    with pytest.raises(ConnectionResetError):
        await fill(connection, pair[0], 2 * BLIND_BYTES_MAX)
