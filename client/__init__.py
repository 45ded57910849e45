"""The Python client of Penstock: HTTP only, and no import of the server's packages.

Names are loaded when first used, because aiohttp takes longer to import than a short command takes to run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client.aio import Client, ClientStatistics
    from client.consumer import Consumer
    from client.delivery import Delivery, RecordPosition
    from client.errors import (
        BufferFull,
        ChecksumMismatch,
        ClientClosed,
        ClientError,
        ConnectionFailed,
        DeliveryTimedOut,
        IdempotenceUnavailable,
        ProblemError,
        UndecodableBatch,
    )
    from client.options import ClientOptions
    from client.outgoing import Interceptor, OutgoingRecord
    from client.producer import Producer
    from client.record import Record
    from client.serializers import Serializer, load_serializer
    from client.tally import ProducerStatistics

_HOMES = {
    "Client": "client.aio",
    "Consumer": "client.consumer",
    "Producer": "client.producer",
    "Delivery": "client.delivery",
    "RecordPosition": "client.delivery",
    "Record": "client.record",
    "ClientOptions": "client.options",
    "ClientStatistics": "client.aio",
    "Interceptor": "client.outgoing",
    "OutgoingRecord": "client.outgoing",
    "ProducerStatistics": "client.tally",
    "Serializer": "client.serializers",
    "load_serializer": "client.serializers",
    "ClientError": "client.errors",
    "BufferFull": "client.errors",
    "ChecksumMismatch": "client.errors",
    "ClientClosed": "client.errors",
    "ConnectionFailed": "client.errors",
    "DeliveryTimedOut": "client.errors",
    "IdempotenceUnavailable": "client.errors",
    "ProblemError": "client.errors",
    "UndecodableBatch": "client.errors",
}

__all__ = [
    "BufferFull",
    "ChecksumMismatch",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "ClientStatistics",
    "ConnectionFailed",
    "Consumer",
    "Delivery",
    "DeliveryTimedOut",
    "IdempotenceUnavailable",
    "Interceptor",
    "OutgoingRecord",
    "ProblemError",
    "Producer",
    "ProducerStatistics",
    "Record",
    "RecordPosition",
    "Serializer",
    "UndecodableBatch",
    "load_serializer",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'client' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
