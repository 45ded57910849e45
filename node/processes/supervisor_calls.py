"""The calls of shards and the worker to their supervisor over its Unix socket. It handles them in supervisor.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gateway.links.link import Link
from gateway.metrics.process_metrics import PROCESS_METRICS
from node.cluster.standalone_topics import Membership
from node.messages import RecordFields


@dataclass(frozen=True, slots=True)
class SupervisorActions:
    """The actions of the supervisor that its processes call for, and two values that they read."""

    member: Membership
    register: Callable[[int, Link], Awaitable[list[RecordFields]]]
    ready: Callable[[int, int], None]
    follow_failure: Callable[[str, str], None]
    tokens: Callable[[], str | None]
    producer_floor: Callable[[], int]


class SupervisorConnection:
    """Connects one process to the supervisor."""

    def __init__(self, supervisor: SupervisorActions) -> None:
        self._supervisor = supervisor
        self.link = Link(
            {
                "topics": self._topics,
                "tokens": self._tokens,
                "ready": self._ready,
                "create_topic": self._create_topic,
                "alter_topic": self._alter_topic,
                "delete_topic": self._delete_topic,
                "take_producer_ids": self._take_producer_ids,
                "end_of_producer_ids": self._end_of_producer_ids,
                "directory_failed": self._directory_failed,
                **PROCESS_METRICS,
                **supervisor.member.handlers(),
            }
        )

    async def _topics(self, index: Any, _: bytes) -> tuple[Any, bytes]:
        return await self._supervisor.register(index, self.link), b""

    async def _tokens(self, _: Any, __: bytes) -> tuple[str | None, bytes]:
        return self._supervisor.tokens(), b""

    async def _ready(self, arguments: Any, _: bytes) -> tuple[None, bytes]:
        self._supervisor.ready(*arguments)
        return None, b""

    async def _create_topic(self, arguments: Any, _: bytes) -> tuple[bool, bytes]:
        return await self._supervisor.member.create_topic(*arguments), b""

    async def _alter_topic(self, arguments: Any, _: bytes) -> tuple[None, bytes]:
        await self._supervisor.member.alter_topic(*arguments)
        return None, b""

    async def _directory_failed(self, arguments: Any, _: bytes) -> tuple[None, bytes]:
        self._supervisor.follow_failure(*arguments)
        return None, b""

    async def _delete_topic(self, name: Any, _: bytes) -> tuple[None, bytes]:
        await self._supervisor.member.delete_topic(name)
        return None, b""

    async def _take_producer_ids(self, _: Any, __: bytes) -> tuple[tuple[int, int], bytes]:
        block = await self._supervisor.member.take_producer_ids(self._supervisor.producer_floor())
        return (block.start, block.stop), b""

    async def _end_of_producer_ids(self, _: Any, __: bytes) -> tuple[int, bytes]:
        return await self._supervisor.member.end_of_producer_ids(self._supervisor.producer_floor()), b""
