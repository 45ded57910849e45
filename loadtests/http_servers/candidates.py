"""The candidates: HTTP servers around one bare function, which answers a POST with 60 bytes of JSON.

Run as `python -m loadtests.http_servers.candidates NAME`; prints its port once it listens. Each reads the complete body
and checks nothing, so only the servers differ. `penstock` is gateway/wire, the node's own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import uvloop

HOST = "127.0.0.1"
ANSWER = b'{"topic":"t","partition":0,"offset":123456,"timestamp":17000}'
HEADERS = [("Content-Type", "application/json"), ("Penstock-Request-Id", "n1.0-1")]
BODY_BYTES_MAX = 2**20


async def granian() -> None:
    from granian.constants import HTTPModes, Interfaces
    from granian.server.embed import Server

    async def answer(scope: Any, proto: Any) -> None:
        await proto()
        proto.response_bytes(200, HEADERS, ANSWER)

    port = free_port()
    server = Server(
        answer, address=HOST, port=port, interface=Interfaces.RSGI, http=HTTPModes.auto, websockets=False,
        log_enabled=False,
    )  # fmt: skip
    serving = asyncio.create_task(server.serve())
    await asyncio.sleep(1.0)  # it does not report its start
    print(port, flush=True)
    await serving


async def aiohttp() -> None:
    from aiohttp import web

    async def answer(request: web.BaseRequest) -> web.Response:
        await request.read()
        return web.Response(body=ANSWER, headers=dict(HEADERS))

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


async def hypercorn() -> None:
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": ANSWER})

    config = Config()
    listening = socket.create_server((HOST, 0))
    config.bind = [f"fd://{os.dup(listening.fileno())}"]
    config.loglevel = "ERROR"
    print(listening.getsockname()[1], flush=True)
    await serve(answer, config, shutdown_trigger=asyncio.Event().wait)


async def httptools() -> None:
    """Serves HTTP/1.1 in the loop's thread by llhttp, with one task a request."""
    from httptools import HttpRequestParser

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: Any = transport
            self.parser = HttpRequestParser(self)

        def data_received(self, data: bytes) -> None:
            self.parser.feed_data(data)

        def on_message_begin(self) -> None:
            self.headers: list[tuple[bytes, bytes]] = []
            self.body: list[bytes] = []

        def on_url(self, url: bytes) -> None:
            self.url = url

        def on_header(self, name: bytes, value: bytes) -> None:
            self.headers.append((name, value))

        def on_body(self, body: bytes) -> None:
            self.body.append(body)

        def on_message_complete(self) -> None:
            run(self.answer(b"".join(self.body)))

        async def answer(self, body: bytes) -> None:
            head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS)
            self.transport.write(
                b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (head.encode(), len(ANSWER), ANSWER)
            )

    await listen(Connection)


async def h2() -> None:
    """Serves HTTP/2 in the loop's thread by the h2 library, with one task a request."""
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.events import DataReceived, RequestReceived, StreamEnded

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: Any = transport
            self.h2 = H2Connection(H2Configuration(client_side=False))
            self.h2.initiate_connection()
            self.is_flushing = False
            self.flush()

        def data_received(self, data: bytes) -> None:
            for event in self.h2.receive_data(data):
                if isinstance(event, DataReceived):
                    self.h2.increment_flow_control_window(event.flow_controlled_length)
                elif isinstance(event, StreamEnded):
                    run(self.answer(event.stream_id))
                elif isinstance(event, RequestReceived):
                    pass

        async def answer(self, stream_id: int) -> None:
            headers = [(name.lower(), value) for name, value in HEADERS]
            self.h2.send_headers(stream_id, [(":status", "200"), *headers, ("content-length", str(len(ANSWER)))])
            self.h2.send_data(stream_id, ANSWER, end_stream=True)
            if not self.is_flushing:
                self.is_flushing = True
                asyncio.get_running_loop().call_soon(self.flush)

        def flush(self) -> None:
            self.is_flushing = False
            self.transport.write(self.h2.data_to_send())

    await listen(Connection)


async def penstock() -> None:
    from gateway.wire.exchange import Exchange
    from gateway.wire.idle import Times
    from gateway.wire.listening import listen as open_sockets
    from gateway.wire.messages import WireLimits
    from gateway.wire.server import HttpServer

    async def answer(exchange: Exchange) -> None:
        while (data := exchange.read_nowait()) != b"":
            if data is None:
                await exchange.wait_readable()
        exchange.answer(200, [*HEADERS, ("Content-Length", str(len(ANSWER)))], ANSWER)

    server = HttpServer(answer, WireLimits(), Times(60.0, 60.0, 60.0, 60.0, 1000), 1000, time.time)
    sockets = open_sockets([(HOST, 0)])
    print(sockets[0].getsockname()[1], flush=True)
    server.open(sockets)
    await server.watch()


def run(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_running.discard)


_running: set[asyncio.Task[None]] = set()


async def listen(factory: Callable[[], asyncio.Protocol]) -> None:
    server = await asyncio.get_running_loop().create_server(factory, HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


CANDIDATES: dict[str, Callable[[], Awaitable[None]]] = {
    one.__name__: one for one in (granian, aiohttp, hypercorn, httptools, h2, penstock)
}

if __name__ == "__main__":
    uvloop.run(CANDIDATES[sys.argv[1]]())
