"""The baseline: a bare Granian RSGI function that appends each request's raw body to a file, and reads it back.

It shows the minimal cost of an HTTP append in Python on this server: no routes, no checks, no offsets, no fsync, no
error handling. Run as `python -m loadtests.peers.bare_append --file PATH`; prints one line when it listens. POST /
appends; GET /?position=0&length=N returns N bytes of the file; DELETE / empties it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from typing import Any
from urllib.parse import parse_qs

import click
import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP2Settings
from granian.server.embed import Server

HOST = "127.0.0.1"
# The same as the gateway's, so that HTTP/2 windows make no difference.
HTTP2 = HTTP2Settings(
    max_concurrent_streams=1024,
    initial_connection_window_size=16 * 1024 * 1024,
    initial_stream_window_size=4 * 1024 * 1024,
    max_frame_size=256 * 1024,
)
_TYPE = [("Content-Type", "application/octet-stream")]


class BareAppend:
    """One file and three methods."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)

    async def __call__(self, scope: Any, proto: Any) -> None:
        if scope.method == "POST":
            os.write(self._handle, await proto())
            proto.response_bytes(200, _TYPE, b"{}")
        elif scope.method == "DELETE":
            os.ftruncate(self._handle, 0)
            proto.response_empty(204, [])
        else:
            query = parse_qs(scope.query_string)
            length, position = int(query["length"][0]), int(query["position"][0])
            proto.response_bytes(200, _TYPE, os.pread(self._handle, length, position))


async def run(path: str) -> None:
    logging.getLogger("_granian").setLevel(logging.ERROR)
    logging.getLogger("granian").setLevel(logging.ERROR)
    port = _free_port()
    server = Server(
        BareAppend(path),
        address=HOST,
        port=port,
        interface=Interfaces.RSGI,
        http=HTTPModes.auto,
        websockets=False,
        backlog=4096,
        backpressure=16_384,
        http2_settings=HTTP2,
        log_enabled=False,
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    serving = asyncio.create_task(server.serve())
    await _wait_listening(port)
    print(f"bare append is ready on http://{HOST}:{port} (file: {path})", flush=True)
    await stop.wait()
    server.stop()
    server.main_loop_interrupt.set()
    await serving


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


async def _wait_listening(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


@click.command()
@click.option("--file", "path", required=True, help="The file that bodies are appended to.")
def main(path: str) -> None:
    """Serve the baseline until SIGTERM."""
    uvloop.run(run(path))


if __name__ == "__main__":
    main()
