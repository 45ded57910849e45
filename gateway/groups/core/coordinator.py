"""The coordinator of the groups of one partition of the groups topic: every call on them, as a synchronous core.

A call changes the state in memory and leaves records behind (`take_rows`); its answer may leave once they are stored.
gateway/groups/hosting.py does both, and replays the records after a change of leaders. No clock, no I/O, no randomness:
the time, new member ids and the existing topics are arguments.
Invariant: replaying all rows that were ever taken gives the state, except sessions, targets and versions.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.groups.core import membership, positions
from gateway.groups.core.errors import CoordinatorMoved, GroupNotEmpty, GroupsFull, UnknownGroup
from gateway.groups.core.membership import check_epoch, find_member, rebalance, release
from gateway.groups.core.settings import CoordinatorLimits, group_settings
from gateway.groups.core.state import Group, KnownTopic, Member, replay
from gateway.groups.core.values import (
    CommitCall,
    ConfigCall,
    Grant,
    GroupRow,
    GroupView,
    HeartbeatCall,
    LeaveCall,
    Membership,
    MemberView,
    Now,
    OffsetView,
    PollCall,
    Position,
    ResetCall,
    Row,
    Setting,
    Slot,
    TopicSize,
    TopicSource,
    slots_of,
)

IDLE_LOOK_MS = 60_000  # between two looks for groups to forget: their retention is a minute at least


class Coordinator:
    """`woken` has the members whose open polls should look at their assignment again, as (group, member)."""

    def __init__(self, limits: CoordinatorLimits) -> None:
        self.groups: dict[str, Group] = {}
        self.woken: set[tuple[str, str]] = set()
        self._limits = limits
        self._touched: dict[str, Group] = {}
        self._idle_look_ms = 0

    def __repr__(self) -> str:
        return (
            f"Coordinator(groups={len(self.groups)}, members={sum(len(one.members) for one in self.groups.values())})"
        )

    def replay(self, row: Row) -> None:
        """Applies one record of the log."""
        replay(self.groups, row)

    def begin(self, now: Now, source: TopicSource) -> None:
        """Begins to coordinate after the replay: each member gets a full session, and a reconciliation goes on."""
        for group in self.groups.values():
            for member in group.members.values():
                member.session_ends_ms = now.steady_ms + member.session_timeout_ms
            if group.members:
                membership.aim(self._touch(group), source)
                membership.reconcile(group, now)

    def heartbeat(self, call: HeartbeatCall, now: Now, source: TopicSource) -> Membership:
        """Joins with epoch 0, keeps a session alive, takes what the member has given up.

        Raises UnknownMember, MemberFenced, GroupsFull.
        """
        group = self._group_of_member(call.group, now, is_join=call.member_epoch == 0 and call.topics is not None)
        member = group.members.get(call.member_id)
        timeouts_ms = (call.session_timeout_ms, call.rebalance_timeout_ms)
        if call.member_epoch == 0 and call.topics is not None and member is None:
            member = self._join(group, call.member_id, call.topics, call, timeouts_ms, now, source)
        else:
            member = find_member(group, call.member_id)
            if call.member_epoch:
                check_epoch(group, member, call.member_epoch)
            else:
                membership.rejoin(group, member, call.client, timeouts_ms)
            if call.topics is not None:
                membership.subscribe(group, member, call.topics, now, source)
        if call.owned is not None:
            kept = slots_of(call.owned)  # a late repeat does not know yet what was revoked
            known = [slot for slot in member.revoking if member.revoked[slot] <= call.member_epoch]
            release(group, member, [slot for slot in known if slot not in kept], now)
        self._alive(member, now)
        session_ms = member.session_timeout_ms
        heartbeat_ms = min(group.settings.heartbeat_ms, session_ms // 2)
        read = positions.assignment(group, member, {})
        return Membership(member.member_id, member.epoch, read, heartbeat_ms, session_ms, group.settings.start)

    def poll(self, call: PollCall, now: Now, source: TopicSource) -> Grant:
        """Commits the delivery of the token, takes what was revoked, and returns what the member may read.

        A member that is not known joins, if it sends topics and no token. Raises UnknownMember, StaleToken,
        InvalidToken, GroupsFull.
        """
        if call.token is not None and call.group not in self.groups:
            raise positions.stale(f"group {call.group!r} was deleted")
        group = self._group_of_member(call.group, now, is_join=call.topics is not None)
        member = group.members.get(call.member_id)
        timeouts_ms = (call.session_timeout_ms, call.rebalance_timeout_ms)
        read: dict[Slot, int] = {}
        if member is None:
            if call.token is not None:
                raise positions.stale(f"member {call.member_id!r} of group {call.group!r} was removed")
            if call.topics is None:
                find_member(group, call.member_id)
            member = self._join(group, call.member_id, call.topics or (), call, timeouts_ms, now, source)
        else:
            if call.token is not None:
                read = positions.commit_delivery(group, member, call.token, now)
            elif call.topics is not None:
                membership.rejoin(group, member, call.client, timeouts_ms)
            if member.revoking and not positions.is_repeat(member, call.token):
                release(group, member, list(member.revoking), now)
            if call.topics is not None:
                membership.subscribe(group, member, call.topics, now, source)
        starts = [one for one in call.starts if one.slot in member.assigned and one.slot not in group.offsets]
        positions.check_room(group, starts, self._limits, source)
        positions.commit(group, starts, now)
        self._alive(member, now)
        member.delivery = 1 + max(member.delivery, 0 if call.token is None else call.token.delivery)
        return Grant(
            member.epoch,
            group.resets,
            member.version,
            positions.assignment(group, member, read),
            group.settings.start,
            group.settings.auto_commit,
            delivery=member.delivery,
        )

    def leave(self, call: LeaveCall, now: Now, source: TopicSource) -> None:
        """Removes a member; one that is not there has left already."""
        group = self.groups.get(call.group)
        if group is not None and call.member_id in group.members:
            membership.remove(self._touch(group), [call.member_id], now, source)

    def commit(self, call: CommitCall, now: Now, source: TopicSource) -> None:
        """Commits positions; without a member it creates the group.

        Raises GroupNotEmpty, UnknownMember, MemberFenced, GroupsFull, CoordinatorMoved.
        """
        group = self._group_of_member(call.group, now, is_join=call.member_id is None)
        _check_topics(call.positions, source)
        member = None if call.member_id is None else find_member(group, call.member_id)
        if member is not None:
            positions.check_member_commit(group, member, call.member_epoch, call.positions)
        elif not call.force:
            _check_empty(group, "commit with a member's member_id and member_epoch, or with force")
        positions.check_room(group, call.positions, self._limits, source)
        if member is not None:
            self._alive(member, now)
        self._know(group, call.positions, now, source)
        positions.commit(group, call.positions, now)
        self._add(group)

    def reset(self, call: ResetCall, now: Now, source: TopicSource) -> None:
        """Sets positions in any direction, and ends all tokens; commits of earlier epochs are fenced.

        Raises GroupNotEmpty, UnknownGroup, GroupsFull, CoordinatorMoved.
        """
        group = self._touch(self.find(call.group))
        if call.resets is not None and call.resets != group.resets:
            return
        if not call.force:
            _check_empty(group, "stop its members first, or reset with force")
        _check_topics(call.positions, source)
        positions.check_room(group, call.positions, self._limits, source)
        self._know(group, call.positions, now, source)
        positions.store(group, call.positions, now)
        group.resets += 1
        membership.fence(group, [one.slot for one in call.positions])
        for member in group.members.values():
            member.version += 1
            self.woken.add((group.name, member.member_id))

    def configure(self, call: ConfigCall, now: Now, source: TopicSource) -> bool:
        """Creates a group or changes its settings. Returns whether it is new. Raises InvalidConfig, GroupsFull."""
        is_new = call.group not in self.groups
        group = self._group_of_member(call.group, now, is_join=True)
        group_settings({name: value for name, value in call.config.items() if value is not None})
        config: dict[str, Setting] = {
            name: value for name, value in {**group.config, **call.config}.items() if value is not None
        }
        group.set_config(config)
        group.is_changed = True
        group.active_ms = now.wall_ms
        self._add(group)
        if group.members:
            rebalance(group, now, source)
        return is_new

    def delete(self, name: str, now: Now, source: TopicSource) -> None:
        """Deletes a group and its positions. Raises UnknownGroup, GroupNotEmpty."""
        group = self.find(name)
        _check_empty(group, "stop its members first, or delete each of them")
        self._delete(group)

    def forget(self, name: str, slots: Iterable[Slot]) -> None:
        """Deletes committed positions. Raises UnknownGroup, GroupNotEmpty."""
        group = self._touch(self.find(name))
        _check_empty(group, "stop its members first")
        for slot in slots:
            if group.offsets.pop(slot, None) is not None:
                group.changed_offsets.add(slot)

    def sweep(self, now: Now, source: TopicSource) -> None:
        """Removes members and groups whose time is over, and follows topics that came, grew or went."""
        sizes: dict[str, TopicSize | None] = {}  # each topic is looked up once, however many groups read it
        looks_for_idle = now.steady_ms >= self._idle_look_ms
        if looks_for_idle:
            self._idle_look_ms = now.steady_ms + IDLE_LOOK_MS
        for group in list(self.groups.values()):
            if not group.members:
                if looks_for_idle and self._is_idle(group, now):
                    self._delete(group)
                continue
            if gone := membership.expired(group, now):
                membership.remove(self._touch(group), gone, now, source)
            for topic, size in group.sizes.items():
                if topic not in sizes:
                    sizes[topic] = source.find(topic)
                if sizes[topic] != size:
                    rebalance(self._touch(group), now, source)
                    break

    def wait(self, name: str, member_id: str, now: Now, change: int) -> int | None:
        """Counts an open poll (`change` 1) or its end (-1). Returns the member's version; None: it is not a member."""
        group = self.groups.get(name)
        member = None if group is None else group.members.get(member_id)
        if member is None:
            return None
        member.waiting = max(0, member.waiting + change)
        self._alive(member, now)
        return member.version

    def take_rows(self) -> list[Row]:
        """Returns the records of all changes since the last call, and notes which members to wake."""
        rows: list[Row] = []
        for group in self._touched.values():
            self.woken.update((group.name, member_id) for member_id in group.changed_members)
            rows += group.take_rows()
        self._touched.clear()
        return rows

    def rows(self) -> list[GroupRow]:
        return [GroupRow(group.name, group.state, len(group.members)) for group in self.groups.values()]

    def find(self, name: str) -> Group:
        """Returns a group. Raises UnknownGroup."""
        group = self.groups.get(name)
        if group is None:
            raise UnknownGroup(f"there is no group {name!r}", hint="its first member or its first commit creates it")
        return group

    def describe(self, name: str, now: Now, source: TopicSource) -> GroupView:
        """Describes a group for people. Raises UnknownGroup."""
        group = self.find(name)
        slots = sorted({*group.offsets, *group.target, *group.owners})
        return GroupView(
            group.name,
            group.state,
            group.epoch,
            group.config,
            tuple(_member_view(member, now) for _, member in sorted(group.members.items())),
            tuple(_offset_view(group, slot) for slot in slots),
        )

    def _group_of_member(self, name: str, now: Now, *, is_join: bool) -> Group:
        """Returns the group, or a new one for a call that creates it. Raises UnknownGroup, GroupsFull.

        The count of resets begins with the time, so that no token of a deleted group of this name is of the new one.
        """
        group = self.groups.get(name)
        if group is None:
            if not is_join:
                return self.find(name)
            if len(self.groups) >= self._limits.groups_max:
                text = f"this coordinator has {self._limits.groups_max} groups"
                raise GroupsFull(text, limit=self._limits.groups_max)
            group = Group(name, resets=now.wall_ms)
        return self._touch(group)

    def _join(
        self,
        group: Group,
        member_id: str,
        topics: Iterable[str],
        call: HeartbeatCall | PollCall,
        timeouts_ms: tuple[int | None, int | None],
        now: Now,
        source: TopicSource,
    ) -> Member:
        member = membership.join(group, member_id, topics, call.client, timeouts_ms, self._limits, now, source)
        self._add(group)
        return member

    def _add(self, group: Group) -> None:
        if group.name not in self.groups:
            self.groups[group.name] = group
            group.is_changed = True

    def _touch(self, group: Group) -> Group:
        self._touched[group.name] = group
        return group

    def _delete(self, group: Group) -> None:
        del self.groups[group.name]
        self._touch(group).is_deleted = group.is_changed = True
        group.changed_offsets.update(group.offsets)
        group.offsets.clear()

    def _know(self, group: Group, found: Iterable[Position], now: Now, source: TopicSource) -> None:
        for one in found:
            known, size = group.topics.get(one.topic), source.find(one.topic)
            if size is not None and (known is None or known.topic_id != size.topic_id):
                membership.know(group, one.topic, KnownTopic(size.topic_id, size.partitions))
                if group.members:
                    rebalance(group, now, source)

    def _is_idle(self, group: Group, now: Now) -> bool:
        return group.last_active_ms() + group.settings.offsets_retention_ms <= now.wall_ms

    def _alive(self, member: Member, now: Now) -> None:
        member.session_ends_ms = now.steady_ms + member.session_timeout_ms


def _check_topics(found: Iterable[Position], source: TopicSource) -> None:
    """Checks that the topics are those that the sender of a call knows. Raises CoordinatorMoved: it calls again.

    Some processes learn of a new topic later than others; until then its positions could not be kept.
    """
    for one in found:
        size = source.find(one.topic)
        if size is None or size.topic_id != one.topic_id:
            raise CoordinatorMoved(
                f"the coordinator does not know the topic {one.topic!r} of that id (any more, or yet)"
            )


def _check_empty(group: Group, hint: str) -> None:
    """Raises GroupNotEmpty."""
    if group.members:
        raise GroupNotEmpty(f"group {group.name!r} has {len(group.members)} members", hint=hint)


def _member_view(member: Member, now: Now) -> MemberView:
    return MemberView(
        member.member_id,
        member.epoch,
        member.client.client_id,
        member.client.address,
        tuple(sorted(member.topics)),
        tuple(sorted(member.assigned)),
        tuple(sorted(member.revoking)),
        max(0, member.session_ends_ms - now.steady_ms),
    )


def _offset_view(group: Group, slot: Slot) -> OffsetView:
    committed = group.offsets.get(slot)
    return OffsetView(
        slot.topic,
        group.topics[slot.topic].topic_id,
        slot.partition,
        None if committed is None else committed.offset,
        "" if committed is None else committed.metadata,
        0 if committed is None else committed.committed_ms,
        group.owners.get(slot, ""),
    )
