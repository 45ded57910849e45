"""The calls on instances (gateway/groups/model/instances.py), over the groups of a coordinator.

Invariants: (1) one request of an instance reads at a time, or its lease has ended; (2) a position that was read counts
for a member only while the partition is the member's since then; (3) what a read returned is stored as read only by
`end_read`, which its caller makes when the records are on their way to the client: a node that ends before has the
records delivered again.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.groups.core import membership, positions
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.core.group_table import check_empty
from gateway.groups.model.errors import GroupsFull, UnknownMember
from gateway.groups.model.instances import (
    BeginRead,
    CommitInstance,
    CreateInstance,
    EndRead,
    Instance,
    InstanceCall,
    InstanceView,
    PlaceInstance,
    ReadPosition,
    SubscribeInstance,
)
from gateway.groups.model.settings import CONSUMER
from gateway.groups.model.state import Group, Member
from gateway.groups.model.values import (
    START_POLICY,
    HeartbeatCall,
    LeaveCall,
    Now,
    Position,
    Slot,
    TopicSource,
)

BY_HAND = 0  # the epoch of a partition that no member owns
_ASSIGNED = "the instance has partitions assigned: unsubscribe first"
_SUBSCRIBED = "the instance is subscribed to topics: unsubscribe first"


def create(core: Coordinator, call: CreateInstance, now: Now, source: TopicSource) -> InstanceView:
    """Creates an instance; `is_new` is false if there is another one of its id. Raises GroupsFull, WrongGroupKind."""
    group, _ = core.find_or_new(call.group, CONSUMER, now)
    instance = group.instances.get(call.instance_id)
    if instance is None and call.instance_id not in group.members:
        if len(group.instances) >= core.limits.members_max:
            text = f"group {group.name!r} has {core.limits.members_max} instances"
            raise GroupsFull(text, limit=core.limits.members_max)
        instance = group.instances[call.instance_id] = Instance(call.settings, call.idle_ms, call.nonce, call.commits)
        instance.seen_ms = now.steady_ms
        _note(core, group, call.instance_id)
        group.active_ms = now.wall_ms
        core.add(group)
    return InstanceView(is_new=instance is not None and instance.nonce == call.nonce)


def look(core: Coordinator, call: InstanceCall, now: Now, source: TopicSource) -> InstanceView:
    """Returns an instance. Raises UnknownGroup, UnknownMember."""
    group, instance = _find(core, call, now)
    return _view(group, call.instance_id, instance, source)


def delete(core: Coordinator, call: InstanceCall, now: Now, source: TopicSource) -> InstanceView:
    """Deletes an instance. Raises UnknownGroup, UnknownMember."""
    group, _ = _find(core, call, now)
    _delete(core, group, call.instance_id, now, source)
    return InstanceView()


def subscribe(core: Coordinator, call: SubscribeInstance, now: Now, source: TopicSource) -> InstanceView:
    """Subscribes, or ends the subscription. Raises as `look`; GroupsFull, InvalidPattern, PatternsUnavailable."""
    group, instance = _find(core, call, now)
    if busy := _busy(instance, now):
        return busy
    ends = not call.topics and call.pattern is None
    if instance.assigned and not ends:
        return InstanceView(refusal=_ASSIGNED)
    if ends:
        core.leave(LeaveCall(group.name, call.instance_id), now, source)
        instance.topics, instance.pattern, instance.assigned, instance.read = None, None, None, {}
    else:
        before = (instance.topics, instance.pattern, instance.client)
        instance.topics, instance.pattern, instance.client = call.topics, call.pattern, call.client
        try:
            _join(core, group, call.instance_id, instance, now, source)
        except Exception:
            instance.topics, instance.pattern, instance.client = before
            raise
    instance.version += 1
    _note(core, group, call.instance_id)
    return _view(group, call.instance_id, instance, source)


def place(core: Coordinator, call: PlaceInstance, now: Now, source: TopicSource) -> InstanceView:
    """Assigns partitions by hand, or moves positions of partitions that are assigned. Raises as `look`."""
    group, instance = _find(core, call, now)
    if busy := _busy(instance, now):
        return busy
    if not call.is_seek:
        if instance.topics is not None:
            return InstanceView(refusal=_SUBSCRIBED)
        instance.assigned = {one.slot: one.topic_id for one in call.positions}
        instance.read = {slot: read for slot, read in instance.read.items() if slot in instance.assigned}
    else:
        epochs = _epochs(group, call.instance_id, instance)
        for one in call.positions:
            if one.slot not in epochs:
                return InstanceView(refusal=f"No current assignment for partition {one.topic}-{one.partition}")
        for one in call.positions:
            instance.read[one.slot] = ReadPosition(one.topic_id, one.offset, epochs[one.slot])
    instance.version += 1
    _note(core, group, call.instance_id)
    return _view(group, call.instance_id, instance, source)


def begin_read(core: Coordinator, call: BeginRead, now: Now, source: TopicSource) -> InstanceView:
    """Begins a read: commits what was read, gives up what was revoked. Raises as `look`, GroupsFull."""
    group, instance = _find(core, call, now)
    if instance.holder != call.holder and (busy := _busy(instance, now)):
        return busy
    if instance.topics is not None:
        member = group.members.get(call.instance_id)
        if instance.commits:
            _commit_read(core, group, call.instance_id, instance, now, source)
        if member is None:  # its session has ended, or it was removed
            member = _join(core, group, call.instance_id, instance, now, source)
        core.keep_alive(member, now)
        member.session_ends_ms += call.lease_ms
        if member.revoking:
            membership.release(core.note_change(group), member, list(member.revoking), now)
    elif instance.commits:
        _commit_read(core, group, call.instance_id, instance, now, source)
    instance.holder, instance.lease_ends_ms = call.holder, now.steady_ms + call.lease_ms
    return _view(group, call.instance_id, instance, source)


def end_read(core: Coordinator, call: EndRead, now: Now, source: TopicSource) -> InstanceView:
    """Ends a read. Raises as `look`."""
    group, instance = _find(core, call, now)
    if instance.holder == call.holder:
        instance.holder, instance.lease_ends_ms = "", 0
    if instance.version == call.version and call.positions:
        epochs = _epochs(group, call.instance_id, instance)
        kept = {slot: read for slot, read in instance.read.items() if epochs.get(slot) == read.epoch}
        moved = {
            one.slot: ReadPosition(one.topic_id, one.offset, epochs[one.slot])
            for one in call.positions
            if one.slot in epochs
        }
        instance.read = kept | moved
        instance.version += 1
        _note(core, group, call.instance_id)
    return InstanceView(version=instance.version)


def commit(core: Coordinator, call: CommitInstance, now: Now, source: TopicSource) -> InstanceView:
    """Commits positions, in any direction. Raises as `look`; GroupNotEmpty, GroupsFull, CoordinatorMoved."""
    group, instance = _find(core, call, now)
    if busy := _busy(instance, now):
        return busy
    if call.instance_id not in group.members:
        check_empty(group, "an instance that is not subscribed commits while the group has no members")
    if call.positions:
        _store(core, group, call.positions, now, source)
    else:
        _commit_read(core, group, call.instance_id, instance, now, source)
    return _view(group, call.instance_id, instance, source)


def sweep(core: Coordinator, now: Now, source: TopicSource) -> None:
    """Deletes instances that no request has named for their time."""
    for group in list(core.groups.values()):
        for instance_id, instance in list(group.instances.items()):
            if not instance.seen_ms:  # the coordinator has just begun
                instance.seen_ms = now.steady_ms
            quiet_since = max(instance.seen_ms, instance.lease_ends_ms)
            if now.steady_ms >= quiet_since + instance.idle_ms:
                group.history.note("session_expired", now, instance_id)
                _delete(core, group, instance_id, now, source)


def _find(
    core: Coordinator,
    call: InstanceCall | SubscribeInstance | PlaceInstance | BeginRead | EndRead | CommitInstance,
    now: Now,
) -> tuple[Group, Instance]:
    group = core.find(call.group)
    instance = group.instances.get(call.instance_id)
    if instance is None:
        text = f"group {call.group!r} has no instance {call.instance_id!r}: it was never created, or was idle too long"
        raise UnknownMember(text, hint="create it again")
    instance.seen_ms = now.steady_ms
    if (member := group.members.get(call.instance_id)) is not None:
        core.keep_alive(member, now)
    return group, instance


def _busy(instance: Instance, now: Now) -> InstanceView | None:
    left_ms = instance.lease_ends_ms - now.steady_ms
    return InstanceView(busy_ms=left_ms) if instance.holder and left_ms > 0 else None


def _note(core: Coordinator, group: Group, instance_id: str) -> None:
    core.note_change(group).changed_instances.add(instance_id)


def _delete(core: Coordinator, group: Group, instance_id: str, now: Now, source: TopicSource) -> None:
    core.leave(LeaveCall(group.name, instance_id), now, source)
    del group.instances[instance_id]
    group.active_ms, group.is_changed = now.wall_ms, True  # its positions are kept from now on
    _note(core, group, instance_id)


def _join(
    core: Coordinator, group: Group, instance_id: str, instance: Instance, now: Now, source: TopicSource
) -> Member:
    """Makes the instance a member, or changes its subscription."""
    assert instance.topics is not None
    call = HeartbeatCall(
        group.name,
        instance_id,
        0,
        instance.topics,
        None,
        instance.idle_ms,
        None,
        instance.client,
        instance.pattern,
    )
    core.heartbeat(call, now, source)
    return group.members[instance_id]


def _epochs(group: Group, instance_id: str, instance: Instance) -> dict[Slot, int]:
    """Returns the partitions of an instance, each with the epoch since when they are its member's."""
    if instance.assigned is not None:
        return dict.fromkeys(instance.assigned, BY_HAND)
    member = group.members.get(instance_id)
    return {} if member is None else member.assigned | member.revoking


def _commit_read(
    core: Coordinator, group: Group, instance_id: str, instance: Instance, now: Now, source: TopicSource
) -> None:
    epochs = _epochs(group, instance_id, instance)
    read = [
        Position(slot.topic, position.topic_id, slot.partition, position.offset)
        for slot, position in sorted(instance.read.items())
        if epochs.get(slot) == position.epoch and _is_there(source, slot.topic, position.topic_id)
    ]
    behind = [one for one in read if (kept := group.offsets.get(one.slot)) is None or kept.offset != one.offset]
    if behind:
        _store(core, group, behind, now, source)


def _store(core: Coordinator, group: Group, moved: Iterable[Position], now: Now, source: TopicSource) -> None:
    moved = tuple(moved)
    positions.check_topics(moved, source)
    positions.check_room(group, moved, core.limits, source)
    core.note_change(group)
    core.know(group, moved, now, source)
    positions.store(group, moved, now)


def _is_there(source: TopicSource, topic: str, topic_id: str) -> bool:
    size = source.find(topic)
    return size is not None and size.topic_id == topic_id


def _view(group: Group, instance_id: str, instance: Instance, source: TopicSource) -> InstanceView:
    member = group.members.get(instance_id)
    topics = () if member is None or instance.topics is None else tuple(sorted(member.topics))
    return InstanceView(
        instance.settings, instance.version, topics, _positions(group, member, instance, source), is_new=False
    )


def _positions(group: Group, member: Member | None, instance: Instance, source: TopicSource) -> tuple[Position, ...]:
    """Returns the partitions of an instance with the next offset of each: read, else committed, else a START_ value."""
    if instance.assigned is None:
        assigned = () if member is None else positions.assignment(group, member, {})
        epochs = {} if member is None else member.assigned
    else:
        assigned = tuple(_by_hand(group, instance.assigned, source))
        epochs = dict.fromkeys(instance.assigned, BY_HAND)
    placed = []
    for one in assigned:
        read = instance.read.get(one.slot)
        if read is not None and read.topic_id == one.topic_id and read.epoch == epochs[one.slot]:
            one = Position(one.topic, one.topic_id, one.partition, read.offset)
        placed.append(one)
    return tuple(placed)


def _by_hand(group: Group, assigned: dict[Slot, str], source: TopicSource) -> Iterable[Position]:
    """Yields partitions with their committed positions. One of a topic that is gone is left out."""
    for slot in sorted(assigned):
        size = source.find(slot.topic)
        if size is None or slot.partition >= size.partitions:
            continue
        known, committed = group.topics.get(slot.topic), group.offsets.get(slot)
        is_of_topic = known is not None and known.topic_id == size.topic_id
        offset = committed.offset if committed is not None and is_of_topic else START_POLICY
        yield Position(slot.topic, size.topic_id, slot.partition, offset)
