"""The arguments of calls between shards and nodes, in the array form in which links carry them.

Nodes of two versions call each other during an upgrade. A new argument is a field at the end with a default: an older
node ignores it, and a newer one takes the default if it is missing.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from replication.replica.acks import Acks

A = TypeVar("A")


class PartitionArguments(Struct, Generic[A], frozen=True, array_like=True):
    """A call for one partition. `leader_epoch` is the newest one that the caller knows, 0 if it knows none."""

    topic_id: str
    topic: str
    partition: int
    leader_epoch: int
    arguments: A


class RowsArguments(Struct, frozen=True, array_like=True):
    """A call for many partitions of a topic: its name, and each partition with its leader epoch."""

    call: str
    topic_id: str
    topic: str
    partitions: list[tuple[int, int]]


class AppendArguments(Struct, frozen=True, array_like=True):
    """An append; its batch is the payload. `conditions_of` decodes `conditions`; None: it has none."""

    topic_id: str
    topic: str
    partition: int
    leader_epoch: int
    acks: Acks
    timeout_ms: int
    conditions: tuple[object, ...] | None


class CheckAppendArguments(Struct, frozen=True, array_like=True):
    topic_id: str
    topic: str
    partition: int
    leader_epoch: int
    acks: Acks


class FindKeyArguments(Struct, frozen=True, array_like=True):
    """A look-up of an idempotency key. `now_ms` is for nodes of an older version, which compute ages from it."""

    topic: str
    topic_id: str
    partitions: list[int]
    key_hash: bytes
    request_hash: bytes
    now_ms: int = 0
