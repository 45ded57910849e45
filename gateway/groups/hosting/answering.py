"""The answers to calls on the coordinators of this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from engine.errors import StorageFull, TooManyOpenFiles
from engine.partition.partition import Partition
from gateway.groups.core import sharing
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.hosting.calls import (
    ACQUIRE,
    CHANGED,
    COMMIT,
    CONFIGURE,
    DELETE,
    DESCRIBE,
    EXPLAIN,
    FORGET,
    HEARTBEAT,
    LEAVE,
    LIST,
    POLL,
    RESET,
    SETTLE,
    SHARE_TOPICS,
    SHORTEN,
    STORED,
    ChangedCall,
    StoredCall,
)
from gateway.groups.hosting.host import GroupHost
from gateway.groups.model.errors import CoordinatorMoved
from gateway.groups.model.values import Grant, GroupRow, Now, PollCall, TopicSource
from gateway.groups.share.values import AcquireCall, Acquired
from gateway.routing.router import Answering

A = TypeVar("A")
R = TypeVar("R")
Decide = Callable[[Coordinator, A, Now, TopicSource], R]


def group_calls(host: GroupHost) -> list[Answering]:
    """Returns the calls to coordinators of this process."""

    def reading(decide: Decide[A, R]) -> Callable[[Partition, A], Awaitable[tuple[R, bytes]]]:
        """Returns a call that stores nothing, which is repeated if a change that it shows could not be stored."""
        deciding_function = deciding(decide)

        async def function(partition: Partition, call: A) -> tuple[R, bytes]:
            try:
                return await deciding_function(partition, call)
            except (StorageFull, TooManyOpenFiles) as error:
                raise CoordinatorMoved(f"a change of the group was not stored: {error}") from None

        return function

    def deciding(decide: Decide[A, R]) -> Callable[[Partition, A], Awaitable[tuple[R, bytes]]]:
        async def function(partition: Partition, call: A) -> tuple[R, bytes]:
            hosted = await host.at(partition)
            answer, sequence = hosted.decide(lambda core, now, source: decide(core, call, now, source))
            await hosted.stored(sequence)
            return answer, b""

        return function

    async def poll(partition: Partition, call: PollCall) -> tuple[Grant, bytes]:
        return (await host.at(partition)).grant(call), b""

    async def acquire(partition: Partition, call: AcquireCall) -> tuple[Acquired, bytes]:
        """Does not wait for the disk: locks are not durable."""
        hosted = await host.at(partition)
        found, _ = hosted.decide(lambda core, now, source: sharing.acquire(core, call, now, source))
        return msgspec.structs.replace(found, hosting=hosted.hosting), b""

    async def stored(partition: Partition, call: StoredCall) -> tuple[None, bytes]:
        await host.decider(partition, call.hosting).stored(call.sequence)
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
        DESCRIBE.by(reading(Coordinator.describe)),
        EXPLAIN.by(reading(Coordinator.explain)),
        FORGET.by(deciding(Coordinator.forget)),
        DELETE.by(deciding(Coordinator.delete)),
        SHARE_TOPICS.by(reading(sharing.topics)),
        ACQUIRE.by(acquire),
        SETTLE.by(deciding(sharing.settle)),
        SHORTEN.by(deciding(sharing.shorten)),
        LIST.by(rows),
    ]
