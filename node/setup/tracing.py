"""Composes what exports the spans of a process: to the collector, or from a shard to the worker."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

from engine.errors import EngineError
from gateway.links.link import Handler, handler
from gateway.links.link_client import LinkClient
from gateway.settings import NodeSettings
from gateway.tracing.exporter import Exporter, NotNow
from gateway.tracing.otlp import resource_attributes
from gateway.tracing.span import SpanRecord
from gateway.tracing.tracer import SpanRing

CALL_S = 10.0


class CollectorExport:
    """Exports spans to the collector of the settings, if they name one."""

    def __init__(self, settings: NodeSettings, ring: SpanRing, executor: Executor) -> None:
        self._exporter = None
        if settings.otlp_endpoint:
            from gateway.tracing.collector import Collector  # it imports aiohttp

            text, service = settings.otlp_resource_attributes, settings.otlp_service_name
            resource = resource_attributes(text, service, f"node-{settings.node_id}")
            self._collector = Collector(settings.otlp_endpoint, resource, executor)
            self._exporter = Exporter(ring, self._collector.send)

    def __repr__(self) -> str:
        return f"CollectorExport({self._exporter})"

    def start(self) -> None:
        if self._exporter is not None:
            self._exporter.start()

    async def stop(self) -> None:
        """Ends the export, after one last attempt."""
        if self._exporter is not None:
            await self._exporter.stop()
            await self._collector.close()


def export_to_worker(settings: NodeSettings, ring: SpanRing, worker: LinkClient) -> Exporter | None:
    """Returns what takes the spans of a shard to the worker, which has the connection to the collector."""

    async def send(spans: Sequence[SpanRecord]) -> None:
        try:
            await worker.link().call("spans", spans, timeout_s=CALL_S)
        except EngineError as error:  # it is restarting
            raise NotNow(f"the worker does not answer: {error}") from None

    return Exporter(ring, send) if settings.otlp_endpoint else None


def span_handlers(ring: SpanRing) -> dict[str, Handler]:
    """Returns the handler of the worker for the spans of shards."""

    async def spans(given: list[SpanRecord], _: bytes) -> tuple[None, bytes]:
        ring.add(given)
        return None, b""

    return {"spans": handler(list[SpanRecord], spans)}
