"""The calls of shards and the worker to their supervisor over its Unix socket. It handles them in supervisor.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import NoneType

from gateway.access.state import Change
from gateway.audit.writer import AuditWriter
from gateway.links.link import Link, handler
from gateway.metrics.process_metrics import process_handlers
from node.cluster.member import Membership
from node.messages import RecordFields
from node.process_calls import AlterTopic, CreateTopic, DirectoryFailed, PartitionMoved, Ready
from node.setup.auditing import CALL as AUDIT_CALL
from node.setup.auditing import take_lines


@dataclass(frozen=True, slots=True)
class SupervisorActions:
    """The actions of the supervisor that its processes call for, and values that they read."""

    member: Membership
    register: Callable[[int, Link], Awaitable[list[RecordFields]]]
    ready: Callable[[int, int], None]
    follow_failure: Callable[[str, str], None]
    record_move: Callable[[str, str, int, str], Awaitable[None]]
    tokens: Callable[[], str | None]
    access: Callable[[], str | None]
    change_access: Callable[[Change], Awaitable[int]]
    issuers: Callable[[], str | None]
    ask_keys: Callable[[str], None]
    producer_floor: Callable[[], int]
    gauges: Callable[[], Iterable[tuple[str, str, float]]]
    audit: Callable[[], AuditWriter | None]


class SupervisorConnection:
    """Connects one process to the supervisor."""

    def __init__(self, supervisor: SupervisorActions) -> None:
        self._supervisor = supervisor
        self.link = Link(
            {
                "topics": handler(int, self._topics),
                "tokens": handler(NoneType, self._tokens),
                "access": handler(NoneType, self._access),
                "change_access": handler(Change, self._change_access),
                AUDIT_CALL: handler(bool, take_lines(supervisor.audit)),
                "issuers": handler(NoneType, self._issuers),
                "ask_keys": handler(str, self._ask_keys),
                "ready": handler(Ready, self._ready),
                "create_topic": handler(CreateTopic, self._create_topic),
                "alter_topic": handler(AlterTopic, self._alter_topic),
                "delete_topic": handler(str, self._delete_topic),
                "take_producer_ids": handler(NoneType, self._take_producer_ids),
                "end_of_producer_ids": handler(NoneType, self._end_of_producer_ids),
                "directory_failed": handler(DirectoryFailed, self._on_directory_failed),
                "partition_moved": handler(PartitionMoved, self._on_partition_moved),
                **process_handlers(supervisor.gauges),
                **supervisor.member.handlers(),
            }
        )

    async def _topics(self, index: int, _: bytes) -> tuple[list[RecordFields], bytes]:
        return await self._supervisor.register(index, self.link), b""

    async def _tokens(self, _: None, __: bytes) -> tuple[str | None, bytes]:
        return self._supervisor.tokens(), b""

    async def _access(self, _: None, __: bytes) -> tuple[str | None, bytes]:
        return self._supervisor.access(), b""

    async def _change_access(self, change: Change, _: bytes) -> tuple[int, bytes]:
        return await self._supervisor.change_access(change), b""

    async def _issuers(self, _: None, __: bytes) -> tuple[str | None, bytes]:
        return self._supervisor.issuers(), b""

    async def _ask_keys(self, alias: str, _: bytes) -> tuple[None, bytes]:
        self._supervisor.ask_keys(alias)
        return None, b""

    async def _ready(self, process: Ready, _: bytes) -> tuple[None, bytes]:
        self._supervisor.ready(process.index, process.producer_floor)
        return None, b""

    async def _create_topic(self, topic: CreateTopic, _: bytes) -> tuple[bool, bytes]:
        return await self._supervisor.member.create_topic(topic), b""

    async def _alter_topic(self, topic: AlterTopic, _: bytes) -> tuple[None, bytes]:
        await self._supervisor.member.alter_topic(topic)
        return None, b""

    async def _on_directory_failed(self, failed: DirectoryFailed, _: bytes) -> tuple[None, bytes]:
        self._supervisor.follow_failure(failed.directory_id, failed.detail)
        return None, b""

    async def _on_partition_moved(self, moved: PartitionMoved, _: bytes) -> tuple[None, bytes]:
        await self._supervisor.record_move(moved.topic_id, moved.topic, moved.partition, moved.directory_id)
        return None, b""

    async def _delete_topic(self, name: str, _: bytes) -> tuple[None, bytes]:
        await self._supervisor.member.delete_topic(name)
        return None, b""

    async def _take_producer_ids(self, _: None, __: bytes) -> tuple[tuple[int, int], bytes]:
        block = await self._supervisor.member.take_producer_ids(self._supervisor.producer_floor())
        return (block.start, block.stop), b""

    async def _end_of_producer_ids(self, _: None, __: bytes) -> tuple[int, bytes]:
        return await self._supervisor.member.end_of_producer_ids(self._supervisor.producer_floor()), b""
