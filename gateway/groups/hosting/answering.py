"""The answers to calls on the coordinators of this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from engine.errors import StorageFull, TooManyOpenFiles
from engine.partition.partition import Partition
from gateway.groups.core import classic_calls, sharing
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
from gateway.groups.hosting.host import A, Decide, GroupHost, R
from gateway.groups.model.errors import CoordinatorMoved
from gateway.groups.model.values import Grant, GroupRow, Now, PollCall, TopicSource
from gateway.groups.share.values import AcquireCall, Acquired, Outcome, SettleCall, Settled
from gateway.routing.router import Answering

_NOT_DURABLE = {Outcome.EXTEND, Outcome.RETURN, Outcome.ABSENT}


def group_calls(host: GroupHost) -> list[Answering]:
    """Returns the calls to coordinators of this process."""

    def reading(decide: Decide[A, R]) -> Callable[[Partition, A], Awaitable[tuple[R, bytes]]]:
        """Returns a call that stores nothing, which is repeated if a change that it shows could not be stored."""

        async def function(partition: Partition, call: A) -> tuple[R, bytes]:
            hosted = await host.at(partition)
            answer, sequence = hosted.decide(lambda core, now, source: decide(core, call, now, source), is_patient=True)
            try:
                await hosted.wait_stored(hosted.prove_lead(sequence))
                return answer, b""
            except (StorageFull, TooManyOpenFiles) as error:
                raise CoordinatorMoved(f"a change of the group was not stored: {error}") from None

        return function

    async def poll(partition: Partition, call: PollCall) -> tuple[Grant, bytes]:
        return (await host.at(partition)).grant(call), b""

    async def acquire(partition: Partition, call: AcquireCall) -> tuple[Acquired, bytes]:
        """Waits for the replicas only, if there are any: locks are not durable, but one coordinator gives them out."""
        hosted = await host.at(partition)
        acquired, _ = hosted.decide(lambda core, now, source: sharing.acquire(core, call, now, source), is_patient=True)
        await hosted.wait_stored(hosted.prove_lead(0, is_strict=bool(acquired.granted)))
        return msgspec.structs.replace(acquired, hosting=hosted.hosting), b""

    async def settle(partition: Partition, call: SettleCall) -> tuple[Settled, bytes]:
        """Extensions, and what a reader gives back, need not be stored, and work on a full disk."""
        hosted = await host.at(partition)
        if not (is_patient := call.outcomes <= _NOT_DURABLE):
            hosted.check_room()
        answer, sequence = hosted.decide(
            lambda core, now, source: sharing.settle(core, call, now, source), call, is_patient=is_patient
        )
        is_extension = Outcome.EXTEND in call.outcomes
        await hosted.wait_stored(hosted.prove_lead(sequence, is_strict=is_extension))
        return answer, b""

    async def wait_stored(partition: Partition, call: StoredCall) -> tuple[None, bytes]:
        await host.decider(partition, call.hosting).wait_stored(call.sequence)
        return None, b""

    async def wait_changed(partition: Partition, call: ChangedCall) -> tuple[bool, bytes]:
        hosted = host.at_once(partition, call.hosting)
        return await hosted.wait_changed(call.group, call.member_id, call.version, call.wait_ms), b""

    def rows(core: Coordinator, _: None, now: Now, source: TopicSource) -> list[GroupRow]:
        return [host.with_lag(row) for row in core.rows()]

    return [
        HEARTBEAT.by(host.deciding(Coordinator.heartbeat)),
        POLL.by(poll),
        STORED.by(wait_stored),
        CHANGED.by(wait_changed),
        LEAVE.by(host.deciding(Coordinator.leave)),
        COMMIT.by(host.deciding(Coordinator.commit, needs_room=True)),
        RESET.by(host.deciding(Coordinator.reset, needs_room=True)),
        CONFIGURE.by(host.deciding(Coordinator.configure, needs_room=True)),
        DESCRIBE.by(reading(Coordinator.describe)),
        EXPLAIN.by(reading(Coordinator.explain)),
        FORGET.by(host.deciding(Coordinator.forget, needs_room=True)),
        DELETE.by(host.deciding(classic_calls.delete, needs_room=True)),
        SHARE_TOPICS.by(reading(sharing.topics)),
        ACQUIRE.by(acquire),
        SETTLE.by(settle),
        SHORTEN.by(host.deciding(sharing.shorten)),
        LIST.by(reading(rows)),
    ]
