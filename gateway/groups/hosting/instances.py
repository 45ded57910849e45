"""The calls on instances at the coordinators of this process. Each may be repeated."""

from __future__ import annotations

from gateway.groups.core import instances
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
from gateway.routing.router import Answering, PartitionCall

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

    return [
        CREATE.by(host.deciding(instances.create)),
        LOOK.by(host.deciding(instances.look)),
        DELETE.by(host.deciding(instances.delete)),
        SUBSCRIBE.by(host.deciding(instances.subscribe)),
        PLACE.by(host.deciding(instances.place)),
        BEGIN_READ.by(host.deciding(instances.begin_read)),
        END_READ.by(host.deciding(instances.end_read)),
        COMMIT.by(host.deciding(instances.commit)),
    ]
