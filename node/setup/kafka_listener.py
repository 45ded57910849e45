"""The listener of Kafka's protocol of a process: opened behind that of HTTP, drained before it."""

from __future__ import annotations

import ssl
from functools import partial

from engine.errors import StartRefused
from engine.runtime.tasks import keep_running
from gateway.access.listeners.tls_context import TlsFiles, read_tls
from gateway.kafka.apis import make_apis
from gateway.kafka.context import make_context
from gateway.kafka.server import KafkaServer
from gateway.kafka.service import Service
from gateway.links.addresses import addresses_of
from gateway.links.kafka_addresses import parse_endpoint
from gateway.server.context import ServerContext
from gateway.settings import NodeSettings
from gateway.wire.listening import listen

CLOSE_S = 2.0  # for answers that are complete and not sent yet


class KafkaListener:
    """Serves Kafka's protocol on one address."""

    def __init__(self, server: ServerContext, settings: NodeSettings) -> None:
        self._settings = settings
        self._clock = server.clock
        self.context = context = make_context(server)
        self._server = KafkaServer(
            Service(context, make_apis(context)),
            context.bodies,
            context.responses,
            settings.connections_max,
            settings.body_read_timeout_ms / 1000,
            settings.stream_stall_ms / 1000,
        )

    async def open(self) -> None:
        """Opens the port. Raises StartRefused."""
        listens = parse_endpoint(self._settings.kafka_listen, "kafka_listen")
        offload = self.context.fetch.offload
        addresses = await offload.in_thread(partial(addresses_of, listens.host))
        tls = await self._tls()
        try:
            self._server.open(listen([(address, listens.port) for address in addresses]), tls)
        except OSError as error:
            raise StartRefused(f"cannot listen on {self._settings.kafka_listen}: {error.strerror}") from None
        self._watching = keep_running(self._server.watch, "watching connections of Kafka's protocol")

    async def renew(self) -> None:
        """Uses the certificate that is on disk now for new connections. Raises StartRefused."""
        tls = await self._tls()
        if tls is not None:
            self._server.renew(tls)

    async def drain(self) -> None:
        """Closes the port, and the connections once their requests are answered."""
        self._watching.cancel()
        await self._server.close(CLOSE_S)

    async def _tls(self) -> ssl.SSLContext | None:
        settings = self._settings
        if not settings.is_tls:
            return None
        files, now_ms = TlsFiles(settings.tls_cert, settings.tls_key), self._clock.now_ms()
        read = partial(read_tls, files, settings.tls_min, requires_certificate=False, now_ms=now_ms)
        return (await self.context.fetch.offload.in_thread(read)).context
