"""The way to the coordinator of a group, from any process.

The coordinator of a group is the leader of its partition of the groups topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

import msgspec

from engine.errors import EngineError
from engine.format.paths import GROUPS_TOPIC
from gateway.groups.hosting.calls import CHANGED, LIST, STORED, ChangedCall
from gateway.groups.hosting.host import GroupHost
from gateway.groups.hosting.hosted import Hosted
from gateway.groups.model.errors import CoordinatorMoved, UnknownGroup
from gateway.groups.model.values import GroupRow
from gateway.routing.leader_failover import is_transient
from gateway.routing.partitions import Topics
from gateway.routing.retry_budget import RetryBudgets
from gateway.routing.router import PartitionCall, Router
from gateway.settings import NodeSettings

A = TypeVar("A")
R = TypeVar("R")
Rows = list

TOPIC_CONFIG = {"cleanup_policy": "compact"}


def has_moved(error: EngineError) -> bool:
    """Returns whether a call failed because the coordinator was replaced."""
    return error.code == CoordinatorMoved.code


class Coordinators:
    """The coordinators of all groups, wherever they run."""

    def __init__(
        self, router: Router, budgets: RetryBudgets, topics: Topics, settings: NodeSettings, host: GroupHost
    ) -> None:
        self._router = router
        self._host = host
        self._budgets = budgets
        self._topics = topics
        self._settings = settings

    def present(self, group: str) -> Hosted | None:
        """Returns the coordinator of a group if it runs in this process for as long as its partition exists."""
        topic = self._topics.get(GROUPS_TOPIC)
        if topic is None:
            return None
        replica = self._router.partitions.lasting_replica(topic, crc32(group.encode()) % topic.record.partitions)
        return None if replica is None else self._host.present(replica.partition)

    async def call(
        self, call: PartitionCall[A, R], kind: type[R] | None, group: str, arguments: A, *, creates: bool = False
    ) -> R:
        """Makes a call at the coordinator of a group, again while it moves. `kind` is the type of its result.

        `creates`: the call may create the groups topic. Raises UnknownGroup without one, and what the call raises.
        """
        budget = self._budgets.begin()
        while True:
            try:
                return await self._call_now(call, kind, group, arguments, creates=creates)
            except EngineError as error:
                if not (has_moved(error) or is_transient(error)) or call is STORED:
                    raise
                await budget.pause(error)

    async def _call_now(
        self, call: PartitionCall[A, R], kind: type[R] | None, group: str, arguments: A, *, creates: bool
    ) -> R:
        partitions = await self._count_partitions(creates=creates)
        if partitions is None:
            raise UnknownGroup(f"there is no group {group!r}", hint="its first member or its first commit creates it")
        number = crc32(group.encode()) % partitions
        result, _ = await self._router.call(call, GROUPS_TOPIC, number, arguments)
        return result if kind is None or isinstance(result, kind) else msgspec.convert(result, kind)

    async def wait_changed(self, group: str, arguments: ChangedCall) -> bool:
        """Waits at the coordinator, as `wait_ms` of the arguments says."""
        partitions = await self._count_partitions(creates=False)
        assert partitions is not None
        number = crc32(group.encode()) % partitions
        wait_ms = arguments.wait_ms
        result, _ = await self._router.call(CHANGED, GROUPS_TOPIC, number, arguments, wait_ms=wait_ms)
        return bool(result)

    async def call_all(self, call: PartitionCall[None, Rows[R]]) -> Sequence[R]:
        """Returns what a call returns at all coordinators. Raises EngineError if one cannot be reached."""
        if await self._count_partitions(creates=False) is None:
            return []
        parts = await self._router.call_all(call, self._topics.topic(GROUPS_TOPIC))
        return [row for part in parts for row in part or ()]

    async def list(self) -> Sequence[GroupRow]:
        """Returns all groups. Raises EngineError if a coordinator cannot be reached."""
        rows = await self.call_all(LIST)
        return [row if isinstance(row, GroupRow) else msgspec.convert(row, GroupRow) for row in rows]

    async def _count_partitions(self, *, creates: bool) -> int | None:
        """Returns how many partitions the groups topic has; None if there is none and it is not to be created."""
        topic = self._topics.get(GROUPS_TOPIC)
        if topic is None:
            await self._topics.refresh(GROUPS_TOPIC)
            topic = self._topics.get(GROUPS_TOPIC)
        if topic is None and creates:
            topic = await self._topics.get_or_create_internal(
                GROUPS_TOPIC,
                self._settings.groups_partitions,
                self._settings.groups_replication_factor,
                TOPIC_CONFIG,
            )
        return None if topic is None else topic.record.partitions
