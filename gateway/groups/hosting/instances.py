"""The calls on instances at the coordinators of this process. Each may be repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from engine.partition.partition import Partition
from gateway.groups.core import instances
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.hosting.host import GroupHost
from gateway.groups.model.instances import (
    BeginRead,
    CommitInstance,
    CreateInstance,
    EndRead,
    InstanceCall,
    InstanceView,
    PlaceInstance,
    SubscribeInstance,
)
from gateway.groups.model.values import Now, TopicSource
from gateway.routing.router import Answering, PartitionCall

A = TypeVar("A")
Decide = Callable[[Coordinator, A, Now, TopicSource], InstanceView]

CREATE: PartitionCall[CreateInstance, InstanceView] = PartitionCall("instance_create", CreateInstance)
LOOK: PartitionCall[InstanceCall, InstanceView] = PartitionCall("instance_look", InstanceCall)
DELETE: PartitionCall[InstanceCall, InstanceView] = PartitionCall("instance_delete", InstanceCall)
SUBSCRIBE: PartitionCall[SubscribeInstance, InstanceView] = PartitionCall("instance_subscribe", SubscribeInstance)
PLACE: PartitionCall[PlaceInstance, InstanceView] = PartitionCall("instance_place", PlaceInstance)
BEGIN_READ: PartitionCall[BeginRead, InstanceView] = PartitionCall("instance_begin_read", BeginRead)
END_READ: PartitionCall[EndRead, InstanceView] = PartitionCall("instance_end_read", EndRead)
COMMIT: PartitionCall[CommitInstance, InstanceView] = PartitionCall("instance_commit", CommitInstance)


def instance_calls(host: GroupHost) -> list[Answering]:
    """Returns the calls to coordinators of this process."""

    def deciding(decide: Decide[A]) -> Callable[[Partition, A], Awaitable[tuple[InstanceView, bytes]]]:
        async def function(partition: Partition, call: A) -> tuple[InstanceView, bytes]:
            hosted = await host.at(partition)
            answer, sequence = hosted.decide(lambda core, now, source: decide(core, call, now, source), call)
            await hosted.wait_stored(sequence or hosted.prove_lead(0))
            return answer, b""

        return function

    return [
        CREATE.by(deciding(instances.create)),
        LOOK.by(deciding(instances.look)),
        DELETE.by(deciding(instances.delete)),
        SUBSCRIBE.by(deciding(instances.subscribe)),
        PLACE.by(deciding(instances.place)),
        BEGIN_READ.by(deciding(instances.begin_read)),
        END_READ.by(deciding(instances.end_read)),
        COMMIT.by(deciding(instances.commit)),
    ]
