"""The calls on a coordinator: in its own process, and the way to it from any other.

The coordinator of a group is the leader of its partition of the groups topic. Every call may be repeated: it does then
what it did before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct

from engine.errors import EngineError
from engine.format.paths import GROUPS_TOPIC
from engine.partition.partition import Partition
from gateway.groups.core import sharing
from gateway.groups.core.activity import Activity
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.errors import CoordinatorMoved, UnknownGroup
from gateway.groups.core.values import (
    CommitCall,
    ConfigCall,
    Grant,
    GroupRow,
    GroupView,
    HeartbeatCall,
    LeaveCall,
    Membership,
    Now,
    PollCall,
    ResetCall,
    TopicSource,
)
from gateway.groups.hosting import GroupHost
from gateway.groups.share.values import AcquireCall, Acquired, SettleCall, Settled, ShortenCall
from gateway.routing.leader_failover import is_transient
from gateway.routing.partitions import Topics
from gateway.routing.retry_budget import RetryBudgets
from gateway.routing.router import Answering, PartitionCall, Router
from gateway.settings import NodeSettings

A = TypeVar("A")
R = TypeVar("R")
Rows = list
Decide = Callable[[Coordinator, A, Now, TopicSource], R]

TOPIC_CONFIG = {"cleanup_policy": "compact"}


class StoredCall(Struct, frozen=True, array_like=True):
    """Waits until a decision is stored."""

    hosting: int
    sequence: int


class ChangedCall(Struct, frozen=True, array_like=True):
    """Waits until the assignment of a member changes."""

    group: str
    member_id: str
    version: int
    hosting: int
    wait_ms: int


HEARTBEAT: PartitionCall[HeartbeatCall, Membership] = PartitionCall("group_heartbeat", HeartbeatCall)
POLL: PartitionCall[PollCall, Grant] = PartitionCall("group_poll", PollCall)
STORED: PartitionCall[StoredCall, None] = PartitionCall("group_stored", StoredCall)
CHANGED: PartitionCall[ChangedCall, bool] = PartitionCall("group_changed", ChangedCall)
LEAVE: PartitionCall[LeaveCall, None] = PartitionCall("group_leave", LeaveCall)
COMMIT: PartitionCall[CommitCall, None] = PartitionCall("group_commit", CommitCall)
RESET: PartitionCall[ResetCall, None] = PartitionCall("group_reset", ResetCall)
CONFIGURE: PartitionCall[ConfigCall, bool] = PartitionCall("group_configure", ConfigCall)
DESCRIBE: PartitionCall[str, GroupView] = PartitionCall("group_describe", str)
EXPLAIN: PartitionCall[str, Activity] = PartitionCall("group_explain", str)
DELETE: PartitionCall[str, None] = PartitionCall("group_delete", str)
SHARE_TOPICS: PartitionCall[str, list[str]] = PartitionCall("share_topics", str)
ACQUIRE: PartitionCall[AcquireCall, Acquired] = PartitionCall("share_acquire", AcquireCall)
SETTLE: PartitionCall[SettleCall, Settled] = PartitionCall("share_settle", SettleCall)
SHORTEN: PartitionCall[ShortenCall, None] = PartitionCall("share_shorten", ShortenCall)
LIST: PartitionCall[None, list[GroupRow]] = PartitionCall("group_list", None)


def group_calls(host: GroupHost) -> list[Answering]:
    """Returns the calls to coordinators of this process."""

    def deciding(decide: Decide[A, R]) -> Callable[[Partition, A], Awaitable[tuple[R, bytes]]]:
        async def function(partition: Partition, call: A) -> tuple[R, bytes]:
            hosted = await host.at(partition)
            answer, sequence = hosted.decide(lambda core, now, source: decide(core, call, now, source))
            await hosted.stored(sequence)
            return answer, b""

        return function

    async def poll(partition: Partition, call: PollCall) -> tuple[Grant, bytes]:
        hosted = await host.at(partition)
        grant, sequence = hosted.decide(lambda core, now, source: core.poll(call, now, source))
        return msgspec.structs.replace(grant, hosting=hosted.hosting, sequence=sequence), b""

    async def acquire(partition: Partition, call: AcquireCall) -> tuple[Acquired, bytes]:
        """Does not wait for the disk: locks are not durable."""
        hosted = await host.at(partition)
        found, _ = hosted.decide(lambda core, now, source: sharing.acquire(core, call, now, source))
        return msgspec.structs.replace(found, hosting=hosted.hosting), b""

    async def stored(partition: Partition, call: StoredCall) -> tuple[None, bytes]:
        await host.at_once(partition, call.hosting).stored(call.sequence)
        return None, b""

    async def changed(partition: Partition, call: ChangedCall) -> tuple[bool, bytes]:
        hosted = host.at_once(partition, call.hosting)
        return await hosted.changed(call.group, call.member_id, call.version, call.wait_ms), b""

    async def rows(partition: Partition, _: None) -> tuple[list[GroupRow], bytes]:
        return (await host.at(partition)).coordinator.rows(), b""

    return [
        HEARTBEAT.by(deciding(Coordinator.heartbeat)),
        POLL.by(poll),
        STORED.by(stored),
        CHANGED.by(changed),
        LEAVE.by(deciding(Coordinator.leave)),
        COMMIT.by(deciding(Coordinator.commit)),
        RESET.by(deciding(Coordinator.reset)),
        CONFIGURE.by(deciding(Coordinator.configure)),
        DESCRIBE.by(deciding(Coordinator.describe)),
        EXPLAIN.by(deciding(Coordinator.explain)),
        DELETE.by(deciding(Coordinator.delete)),
        SHARE_TOPICS.by(deciding(sharing.topics)),
        ACQUIRE.by(acquire),
        SETTLE.by(deciding(sharing.settle)),
        SHORTEN.by(deciding(sharing.shorten)),
        LIST.by(rows),
    ]


def has_moved(error: EngineError) -> bool:
    """Returns whether a call failed because the coordinator was replaced."""
    return error.code == CoordinatorMoved.code


class Coordinators:
    """The coordinators of all groups, wherever they run."""

    def __init__(self, router: Router, budgets: RetryBudgets, topics: Topics, settings: NodeSettings) -> None:
        self._router = router
        self._budgets = budgets
        self._topics = topics
        self._settings = settings

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
        partitions = await self._partitions(creates=creates)
        if partitions is None:
            raise UnknownGroup(f"there is no group {group!r}", hint="its first member or its first commit creates it")
        number = crc32(group.encode()) % partitions
        result, _ = await self._router.call(call, GROUPS_TOPIC, number, arguments)
        return result if kind is None or isinstance(result, kind) else msgspec.convert(result, kind)

    async def changed(self, group: str, arguments: ChangedCall) -> bool:
        """Waits at the coordinator, as `wait_ms` of the arguments says."""
        partitions = await self._partitions(creates=False)
        assert partitions is not None
        number = crc32(group.encode()) % partitions
        wait_ms = arguments.wait_ms
        result, _ = await self._router.call(CHANGED, GROUPS_TOPIC, number, arguments, wait_ms=wait_ms)
        return bool(result)

    async def all_of(self, call: PartitionCall[None, Rows[R]]) -> Sequence[R]:
        """Returns what a call returns at all coordinators. Raises EngineError if one cannot be reached."""
        if await self._partitions(creates=False) is None:
            return []
        found = await self._router.call_all(call, self._topics.topic(GROUPS_TOPIC))
        return [row for part in found for row in part or ()]

    async def list(self) -> Sequence[GroupRow]:
        """Returns all groups. Raises EngineError if a coordinator cannot be reached."""
        rows = await self.all_of(LIST)
        return [row if isinstance(row, GroupRow) else msgspec.convert(row, GroupRow) for row in rows]

    async def _partitions(self, *, creates: bool) -> int | None:
        """Returns how many partitions the groups topic has; None if there is none and it is not to be created."""
        topic = self._topics.get(GROUPS_TOPIC)
        if topic is None:
            await self._topics.refresh(GROUPS_TOPIC)
            topic = self._topics.get(GROUPS_TOPIC)
        if topic is None and creates:
            topic = await self._topics.get_or_create_internal(
                GROUPS_TOPIC, self._settings.groups_partitions, TOPIC_CONFIG
            )
        return None if topic is None else topic.record.partitions
