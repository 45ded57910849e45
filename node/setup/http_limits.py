"""The limits of the HTTP servers of a node: of times, of heads, of bodies."""

from __future__ import annotations

from gateway.http.body import BodyLimits
from gateway.settings import NodeSettings
from gateway.wire.idle import Times
from gateway.wire.messages import WireLimits


def times(settings: NodeSettings) -> Times:
    return Times(
        settings.header_read_timeout_ms / 1000,
        settings.connections_max_idle_ms / 1000,
        settings.http2_ping_ms / 1000,
        settings.stream_stall_ms / 1000,
        settings.body_bytes_per_second_min,
    )


def wire_limits(settings: NodeSettings) -> WireLimits:
    return WireLimits(
        settings.header_bytes_max,
        streams_max=settings.http2_streams_max,
        unsent_bytes_max=settings.connection_send_buffer_bytes_max,
    )


def body_limits(settings: NodeSettings) -> BodyLimits:
    return BodyLimits(
        settings.body_read_timeout_ms / 1000,
        settings.body_bytes_per_second_min,
        settings.lingering_close_ms_max / 1000,
        settings.lingering_close_bytes_max,
    )
