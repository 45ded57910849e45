"""Ports and the HTTP server on them: opened when a node is ready, drained when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence

from engine.errors import StartRefused
from gateway.app import make_app
from gateway.node import Node
from gateway.rsgi import HttpServer, RsgiApp, make_server, stop_server
from gateway.rsgi_body import BodyLimits
from gateway.settings import NodeSettings

LISTEN_ATTEMPTS = 200
LISTEN_PAUSE_S = 0.02
GRANIAN_STOP_S = 2.0


class Listener:
    """Serves one node on some ports of its host."""

    def __init__(self, node: Node, settings: NodeSettings, ports: Sequence[int]) -> None:
        self._settings = settings
        self._node = node
        self._target = RsgiApp(make_app(node), _body_limits(settings))
        self._servers: list[tuple[HttpServer, asyncio.Task[None]]] = []
        self._ports = ports

    async def open(self) -> None:
        """Returns once every port answers. Raises StartRefused."""
        for port in self._ports:
            server = make_server(self._target, self._settings, port)
            serving = asyncio.create_task(server.serve())
            self._servers.append((server, serving))
            await _until_listening(serving, self._settings.host, port)

    async def closed_by_itself(self) -> None:
        """Returns only if the HTTP server ends without being told to."""
        await asyncio.wait([serving for _, serving in self._servers], return_when=asyncio.FIRST_COMPLETED)

    async def drain(self) -> None:
        """Refuse new work, let waiting clients go, finish what is under way until the deadline, close."""
        await self._node.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.shutdown_deadline_ms / 1000):
                await self._target.until_idle()
                await self._target.last_call()
        for server, serving in self._servers:
            stop_server(server)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(serving, GRANIAN_STOP_S)


def _body_limits(settings: NodeSettings) -> BodyLimits:
    return BodyLimits(
        settings.body_read_timeout_ms / 1000,
        settings.body_bytes_per_second_min,
        settings.drain_ms_max / 1000,
        settings.drain_bytes_max,
    )


def free_port(host: str, port: int) -> int:
    """The port, if nobody has it; a free one for 0.

    The listener shares its port between processes (SO_REUSEPORT), so it would not notice a stranger on it; a plain
    bind does. Raises StartRefused.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            taken: int = probe.getsockname()[1]
            return taken
    except OSError as error:
        text = f"cannot listen on {host}:{port}: {error.strerror}"
        raise StartRefused(text, hint="another program has the port: stop it, or give --port another one") from None


def url_of(settings: NodeSettings, port: int) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.is_tls else 'http'}://{host}:{port}"


async def _until_listening(serving: asyncio.Task[None], host: str, port: int) -> None:
    for _ in range(LISTEN_ATTEMPTS):
        if serving.done():
            raise StartRefused(
                f"the listener ended at once: {serving.exception()}", hint="check --tls-cert and --tls-key"
            )
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(LISTEN_PAUSE_S)
        else:
            writer.close()
            return
    raise StartRefused(f"the listener on {host}:{port} does not answer")
