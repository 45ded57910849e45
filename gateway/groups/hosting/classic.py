"""The calls of Kafka's protocols of groups on the coordinators of this process: those that must wait are parked here.

A parked call is made again when its group changes, or when something is due by time. A caller whose process is another
one gets an answer in time for its link, and calls again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import structs

from engine.partition.partition import Partition
from gateway.groups.core import classic_calls, consumer_protocol, share_membership
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.hosting.host import A, Decide, GroupHost
from gateway.groups.model.classic import (
    ClassicCommitCall,
    ClassicLeaveCall,
    ClassicView,
    JoinAnswer,
    JoinCall,
    MemberCall,
    SyncAnswer,
    SyncCall,
)
from gateway.groups.model.consumer_protocol import ConsumerAnswer, ConsumerCall, ConsumerView
from gateway.groups.model.share_members import ShareAnswer, ShareBeat, ShareGroupView
from gateway.groups.model.values import ForgetCall
from gateway.routing.router import Answering, PartitionCall

P = TypeVar("P", JoinAnswer, SyncAnswer)

PARKED_S = 15.0  # half of the time in which a call over a link is answered

JOIN: PartitionCall[JoinCall, JoinAnswer] = PartitionCall("classic_join", JoinCall)
SYNC: PartitionCall[SyncCall, SyncAnswer] = PartitionCall("classic_sync", SyncCall)
HEARTBEAT: PartitionCall[MemberCall, str] = PartitionCall("classic_heartbeat", MemberCall)
LEAVE: PartitionCall[ClassicLeaveCall, list[str]] = PartitionCall("classic_leave", ClassicLeaveCall)
COMMIT: PartitionCall[ClassicCommitCall, str] = PartitionCall("classic_commit", ClassicCommitCall)
DESCRIBE: PartitionCall[str, ClassicView] = PartitionCall("classic_describe", str)
CONSUMER_HEARTBEAT: PartitionCall[ConsumerCall, ConsumerAnswer] = PartitionCall("consumer_heartbeat", ConsumerCall)
CONSUMER_DESCRIBE: PartitionCall[str, ConsumerView] = PartitionCall("consumer_describe", str)
SHARE_HEARTBEAT: PartitionCall[ShareBeat, ShareAnswer] = PartitionCall("share_heartbeat", ShareBeat)
SHARE_DESCRIBE: PartitionCall[str, ShareGroupView] = PartitionCall("share_describe", str)
SHARE_FORGET: PartitionCall[ForgetCall, bool] = PartitionCall("share_forget", ForgetCall)


def classic_group_calls(host: GroupHost) -> list[Answering]:
    """Returns the calls to coordinators of this process."""

    def parking(
        decide: Decide[A, P], member_of: Callable[[A], tuple[str, str]], again: Callable[[A, P], A]
    ) -> Callable[[Partition, A], Awaitable[tuple[P, bytes]]]:
        """Returns a call that is made again, as `again` has it, until its answer is not a parked one."""
        call_now = host.deciding(decide)

        async def function(partition: Partition, call: A) -> tuple[P, bytes]:
            deadline = asyncio.get_running_loop().time() + PARKED_S
            while True:
                hosted = await host.at(partition)
                with hosted.woken(*member_of(call)) as change:
                    answer, _ = await call_now(partition, call)
                    if not answer.is_parked or asyncio.get_running_loop().time() >= deadline:
                        return answer, b""
                    await hosted.wait_woken(change, answer.wake_ms)
                call = again(call, answer)

        return function

    return [
        JOIN.by(
            parking(
                classic_calls.join,
                lambda call: (call.group, call.member_id or call.new_member_id),
                lambda call, answer: structs.replace(call, member_id=answer.member_id),
            )
        ),
        SYNC.by(
            parking(classic_calls.sync, lambda call: (call.member.group, call.member.member_id), lambda call, _: call)
        ),
        HEARTBEAT.by(host.deciding(classic_calls.heartbeat)),
        LEAVE.by(host.deciding(classic_calls.leave)),
        COMMIT.by(host.deciding(classic_calls.commit, needs_room=True)),
        DESCRIBE.by(host.deciding(classic_calls.describe)),
        CONSUMER_HEARTBEAT.by(host.deciding(consumer_protocol.heartbeat)),
        CONSUMER_DESCRIBE.by(host.deciding(consumer_protocol.describe)),
        SHARE_HEARTBEAT.by(host.deciding(share_membership.heartbeat)),
        SHARE_DESCRIBE.by(host.deciding(share_membership.describe)),
        SHARE_FORGET.by(host.deciding(Coordinator.forget_shares)),
    ]
