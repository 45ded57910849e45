"""The listener of REST Proxy's dialect of a process: an HTTP server of its own beside that of the contract."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from engine.errors import StartRefused
from engine.runtime.tasks import keep_running
from gateway.access.listeners.tls_context import Generation, TlsFiles, read_tls
from gateway.connections.send_buffers import SendBuffers
from gateway.http.problems import KINDS
from gateway.http.response import COMMON_HEADERS
from gateway.links.addresses import addresses_of
from gateway.links.kafka_addresses import parse_endpoint
from gateway.links.rest_proxy_address import SETTING
from gateway.rest_proxy.errors import bare_document
from gateway.rest_proxy.routes import rest_proxy_dialect
from gateway.server.adapter import Adapter, waits_without_task
from gateway.server.context import ServerContext
from gateway.settings import NodeSettings
from gateway.wire.idle import Verdict
from gateway.wire.listening import Door, listen
from gateway.wire.messages import Header
from gateway.wire.server import HttpServer
from node.setup.http_limits import body_limits, times, wire_limits

CLOSE_S = 2.0  # for answers that are complete and not sent yet


class RestProxyListener:
    """Serves the dialect on one address."""

    def __init__(
        self,
        server: ServerContext,
        settings: NodeSettings,
        count_ended: Callable[[Verdict], None],
    ) -> None:
        self._settings = settings
        self._context = server
        self._streams = SendBuffers(settings.stream_send_buffer_bytes_max)
        adapter = Adapter(server, body_limits(settings), self._streams, rest_proxy_dialect(server))
        self._server = HttpServer(
            adapter,
            wire_limits(settings),
            times(settings),
            settings.connections_max,
            lambda: server.clock.now_ms() / 1000,
            count_ended,
            _reject_head,
            adapter.take,
            None,
        )
        server.access.waits.include(partial(waits_without_task, self._server))

    async def open(self) -> None:
        """Opens the port. Raises StartRefused."""
        listens = parse_endpoint(self._settings.rest_proxy_listen, SETTING)
        addresses = await self._context.http.offload.in_thread(partial(addresses_of, listens.host))
        generation = await self._generation()
        try:
            sockets = listen([(address, listens.port) for address in addresses])
        except OSError as error:
            raise StartRefused(f"cannot listen on {self._settings.rest_proxy_listen}: {error.strerror}") from None
        self._door = Door(sockets, None if generation is None else generation.context, None)
        self._server.open([self._door])
        self._watching = keep_running(self._server.watch, "watching connections of REST Proxy's dialect")

    async def renew(self) -> None:
        """Uses the certificate that is on disk now for new connections. Raises StartRefused."""
        generation = await self._generation()
        if generation is not None:
            self._server.renew(self._door, generation.context, generation.refuses)

    def announce_leave(self) -> None:
        """Announces the end of each connection with its next answer, before `drain`."""
        self._server.announce_leave()

    async def drain(self) -> None:
        """Closes the port, and the connections once their requests are answered."""
        self._streams.close()
        await self._server.drain(self._settings.shutdown_timeout_ms / 1000)
        self._watching.cancel()
        await self._server.close(CLOSE_S)

    async def _generation(self) -> Generation | None:
        settings = self._settings
        if not settings.is_tls:
            return None
        files, now_ms = TlsFiles(settings.tls_cert, settings.tls_key), self._context.clock.now_ms()
        read = partial(read_tls, files, settings.tls_min, requires_certificate=False, now_ms=now_ms)
        return await self._context.http.offload.in_thread(read)


def _reject_head(status: int) -> tuple[list[Header], bytes]:
    """Returns headers and the document for a request whose head gateway/wire refuses."""
    title = next(kind.title for kind in KINDS.values() if kind.status == status)
    body = bare_document(status, title)
    headers = [("Content-Type", "application/json"), *COMMON_HEADERS, ("Content-Length", str(len(body)))]
    return headers, body
