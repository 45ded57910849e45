"""The HTTP server on a real port with an application of a few lines."""

import asyncio
import socket
import time

from gateway.wire.exchange import Exchange
from gateway.wire.idle import Times
from gateway.wire.listening import Door, listen
from gateway.wire.messages import WireLimits
from gateway.wire.server import HttpServer

GET = b"GET /g HTTP/1.1\r\nHost: h\r\n\r\n"
TIMES = Times(60.0, 60.0, 60.0, 60.0, 1000)


class Served:
    """A server whose application answers `/wait` once `gate` is set, and everything else at once."""

    def __init__(self, application=None, moves_of=None, connections_max=100, tls=None, **options):
        self.gate = asyncio.Event()
        self.begun = []
        self.cancelled = 0
        application = application or self._answer
        self.server = HttpServer(
            application, WireLimits(), TIMES, connections_max, time.time, moves_of=moves_of, **options
        )
        (listener,) = listen([("127.0.0.1", 0)])
        self.place = listener.getsockname()
        self.door = Door([listener], tls)
        self.server.open([self.door])

    async def _answer(self, exchange: Exchange) -> None:
        self.begun.append(exchange.head.path)
        try:
            if exchange.head.path == "/wait":
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        exchange.answer(200, [("Content-Length", "2")], b"ok")

    @property
    def connection(self):
        (connection,) = self.server.connections
        return connection

    async def client(self, data: bytes) -> socket.socket:
        """Open a connection and send these bytes; returns once the server has read them."""
        client = socket.socket()
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, self.place)
        await loop.sock_sendall(client, data)
        await until(lambda: self.begun)
        return client


async def until(is_so):
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.001)
