"""The Python client of Penstock: the names that users import. Speaks HTTP only and imports no module of the server.

Names are loaded when first used, because importing aiohttp takes longer than a short command takes to run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.aio import Client, ClientStatistics
    from penstock.consumer.consumer import Consumer
    from penstock.consumer.delivery import TopicPartition
    from penstock.consumer.deserializers import Deserializer, load_deserializer
    from penstock.consumer.group_consumer import GroupConsumer
    from penstock.consumer.work_queue import WorkQueue, WorkRecord
    from penstock.encryption.encryption import Encryption, EncryptionStatistics
    from penstock.encryption.key_ring import FileKeyRing, KeyRing, WrappedKey
    from penstock.errors import (
        BufferFull,
        ChecksumMismatch,
        ClientClosed,
        ClientError,
        ConnectionFailed,
        DeliveryTimedOut,
        EncryptionFailed,
        IdempotenceUnavailable,
        ProblemError,
        UndecodableBatch,
    )
    from penstock.options import ClientOptions
    from penstock.processing import Output, Processor
    from penstock.producer.batch import Delivery, RecordPosition
    from penstock.producer.preparation import Interceptor, OutgoingRecord, Serializer, load_serializer
    from penstock.producer.producer import Producer
    from penstock.producer.statistics import AcceptedCount, ProducerStatistics
    from penstock.records import Record
    from penstock.tracing import Tracing

    __version__: str

_HOMES = {
    "Client": "penstock.aio",
    "Consumer": "penstock.consumer.consumer",
    "Deserializer": "penstock.consumer.deserializers",
    "load_deserializer": "penstock.consumer.deserializers",
    "Encryption": "penstock.encryption.encryption",
    "EncryptionStatistics": "penstock.encryption.encryption",
    "FileKeyRing": "penstock.encryption.key_ring",
    "KeyRing": "penstock.encryption.key_ring",
    "WrappedKey": "penstock.encryption.key_ring",
    "GroupConsumer": "penstock.consumer.group_consumer",
    "TopicPartition": "penstock.consumer.delivery",
    "WorkQueue": "penstock.consumer.work_queue",
    "WorkRecord": "penstock.consumer.work_queue",
    "Output": "penstock.processing",
    "Processor": "penstock.processing",
    "Producer": "penstock.producer.producer",
    "Delivery": "penstock.producer.batch",
    "RecordPosition": "penstock.producer.batch",
    "Record": "penstock.records",
    "Tracing": "penstock.tracing",
    "ClientOptions": "penstock.options",
    "ClientStatistics": "penstock.aio",
    "Interceptor": "penstock.producer.preparation",
    "OutgoingRecord": "penstock.producer.preparation",
    "AcceptedCount": "penstock.producer.statistics",
    "ProducerStatistics": "penstock.producer.statistics",
    "Serializer": "penstock.producer.preparation",
    "load_serializer": "penstock.producer.preparation",
    "ClientError": "penstock.errors",
    "BufferFull": "penstock.errors",
    "ChecksumMismatch": "penstock.errors",
    "ClientClosed": "penstock.errors",
    "ConnectionFailed": "penstock.errors",
    "DeliveryTimedOut": "penstock.errors",
    "EncryptionFailed": "penstock.errors",
    "IdempotenceUnavailable": "penstock.errors",
    "ProblemError": "penstock.errors",
    "UndecodableBatch": "penstock.errors",
}

__all__ = [
    "AcceptedCount",
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
    "Deserializer",
    "Encryption",
    "EncryptionFailed",
    "EncryptionStatistics",
    "FileKeyRing",
    "GroupConsumer",
    "IdempotenceUnavailable",
    "Interceptor",
    "KeyRing",
    "OutgoingRecord",
    "Output",
    "ProblemError",
    "Processor",
    "Producer",
    "ProducerStatistics",
    "Record",
    "RecordPosition",
    "Serializer",
    "TopicPartition",
    "Tracing",
    "UndecodableBatch",
    "WorkQueue",
    "WorkRecord",
    "WrappedKey",
    "load_deserializer",
    "load_serializer",
]


if not TYPE_CHECKING:  # with it, a type checker would take any name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("importlib.metadata").version("penstock")
        if name not in _HOMES:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
