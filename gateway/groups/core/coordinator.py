"""The coordinator of the groups of one partition of the groups topic: every call on them, as a synchronous core.

A call changes the state in memory and leaves records behind (`take_rows`); its answer may leave once they are stored.
gateway/groups/hosting does both, and replays the records after a change of leaders. No clock, no I/O, no randomness:
the time, new member ids and the existing topics are arguments.
Invariant: replaying all rows that were ever taken gives the state, except sessions, targets and versions.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.groups.core import failures, membership, positions, sharing
from gateway.groups.core.group_table import Ceilings, GroupTable, check_empty, check_kind
from gateway.groups.core.membership import Subscription, check_epoch, find_member, rebalance, release
from gateway.groups.core.patterns import Patterns
from gateway.groups.core.subscription import follow, subscription
from gateway.groups.core.views import group_row, group_view
from gateway.groups.diagnosis.activity import Activity, activity
from gateway.groups.model.errors import GroupsFull
from gateway.groups.model.records import replay
from gateway.groups.model.settings import (
    CONSUMER,
    SHARE,
    CoordinatorLimits,
    check_together,
    group_settings,
    stored_settings,
)
from gateway.groups.model.state import Group, KnownTopic, Member
from gateway.groups.model.values import (
    CommitCall,
    ConfigCall,
    ForgetCall,
    Grant,
    GroupRow,
    GroupView,
    HeartbeatCall,
    LeaveCall,
    Membership,
    Now,
    PollCall,
    Position,
    PushCall,
    ResetCall,
    Row,
    Setting,
    Slot,
    TopicSize,
    TopicSource,
    slots_of,
)

IDLE_LOOK_MS = 60_000  # between two looks for groups to forget: their retention is a minute at least


class Coordinator(GroupTable):
    """The calls on groups, over their table."""

    def __init__(self, limits: CoordinatorLimits, ceilings: Ceilings | None = None) -> None:
        super().__init__(limits, ceilings)
        self._idle_look_ms = 0
        self._patterns = Patterns()
        self._sizes: dict[str, TopicSize | None] = {}  # of all topics of groups with members, as of the last sweep

    def __repr__(self) -> str:
        members = sum(len(group.members) for group in self.groups.values())
        return f"Coordinator(groups={len(self.groups)}, members={members})"

    def replay(self, row: Row) -> None:
        """Applies one record of the log."""
        replay(self.groups, row)

    def begin(self, now: Now, source: TopicSource) -> None:
        """Begins to coordinate after the replay: each member gets a full session, and a reconciliation goes on.

        Idle groups have the age that they had when the log last had activity, whatever the clock says now, but at most
        half of their retention: one activity under a clock that was ahead makes all others look old.
        """
        self._patterns.begin_look(source.names())
        last_ms = max((group.last_active_ms() for group in self.groups.values()), default=0)
        for group in self.groups.values():
            age_ms = min(last_ms - group.last_active_ms(), group.settings.offsets_retention_ms // 2)
            group.idle_since_ms = now.steady_ms - age_ms
            if group.share is not None:
                sharing.begin(group, now)
            failures.begin(group, now)
            group.history.note("coordinator_started", now)
            for member in group.members.values():
                self.keep_alive(member, now)
                member.moved_ms = now.steady_ms
            if group.members:
                self._follow(self.note_change(group), now, source)
                membership.aim(group, source)
                membership.reconcile(group, now)

    def heartbeat(self, call: HeartbeatCall, now: Now, source: TopicSource) -> Membership:
        """Joins with epoch 0, keeps a session alive, takes what the member has given up.

        Raises UnknownMember, MemberFenced, GroupsFull, InvalidPattern, PatternsUnavailable.
        """
        interest = self._subscription(call, source)
        group = self._group_of_member(call.group, now, is_join=call.member_epoch == 0 and call.topics is not None)
        member = group.members.get(call.member_id)
        timeouts_ms = (call.session_timeout_ms, call.rebalance_timeout_ms)
        if call.member_epoch == 0 and interest is not None and member is None:
            member = self._join(group, call.member_id, interest, call, timeouts_ms, now, source)
        else:
            member = find_member(group, call.member_id)
            if call.member_epoch:
                check_epoch(group, member, call.member_epoch)
            else:
                membership.rejoin(group, member, call.client, timeouts_ms, now, source)
            if interest is not None:
                membership.subscribe(group, member, interest, now, source)
        if call.owned is not None:
            owned = slots_of(call.owned)  # a late repeat does not know yet what was revoked
            known_revocations = [slot for slot in member.revoking if member.revoked[slot] <= call.member_epoch]
            release(group, member, [slot for slot in known_revocations if slot not in owned], now)
        self.keep_alive(member, now)
        session_ms = member.session_timeout_ms
        heartbeat_ms = min(group.settings.heartbeat_ms, session_ms // 2)
        read = positions.assignment(group, member, {})
        settings = group.settings
        start, start_time_ms = settings.start, settings.start_time_ms
        return Membership(member.member_id, member.epoch, read, heartbeat_ms, session_ms, start, start_time_ms)

    def poll(self, call: PollCall, now: Now, source: TopicSource) -> Grant:
        """Commits the delivery of the token, takes what was revoked, and returns what the member may read.

        A member that is not known joins, if it sends topics and no token. Raises UnknownMember, StaleToken,
        InvalidToken, GroupsFull, InvalidPattern, PatternsUnavailable, Invalid.
        """
        interest = self._subscription(call, source)
        if call.token is not None and call.group not in self.groups:
            raise positions.stale(f"group {call.group!r} was deleted")
        group = self._group_of_member(call.group, now, is_join=call.topics is not None)
        member = group.members.get(call.member_id)
        timeouts_ms = (call.session_timeout_ms, call.rebalance_timeout_ms)
        read: dict[Slot, int] = {}
        if member is None:
            if call.token is not None:
                text = f"member {call.member_id!r} of group {call.group!r} was removed"
                raise positions.stale(text, membership.SHARED_ID)
            if interest is None:
                raise membership.unknown_member(group, call.member_id)
            member = self._join(group, call.member_id, interest, call, timeouts_ms, now, source)
        else:
            if call.token is not None:
                read = positions.commit_delivery(group, member, call.token, now)
                failures.take(group, member, call.token, call, now)
            elif call.topics is not None and not call.starts:
                membership.rejoin(group, member, call.client, timeouts_ms, now, source)
            if member.revoking:
                release(group, member, positions.given_up_slots(member, call), now)
            if interest is not None:
                membership.subscribe(group, member, interest, now, source)
        starts = [start for start in call.starts if start.slot in member.assigned and start.slot not in group.offsets]
        positions.check_room(group, starts, self.limits, source)
        positions.commit(group, starts, now)
        self.keep_alive(member, now)
        membership.note_begun(group, member, call, starts, now)
        positions.note_shared_id(group, member, call, now)
        member.delivery = 1 + max(member.delivery, positions.last_delivery(call))
        return Grant(
            member.epoch,
            group.resets,
            member.version,
            positions.assignment(group, member, read),
            group.settings.start,
            group.settings.auto_commit,
            delivery=member.delivery,
            start_time_ms=group.settings.start_time_ms,
            priorities=group.settings.priorities,
            partition_bytes_max=group.settings.partition_bytes_max,
            dead=failures.dead_letters(group, call.failed) if call.failed else (),
            delayed=failures.delayed_partitions(group, member, now) if group.delayed else (),
        )

    def leave(self, call: LeaveCall, now: Now, source: TopicSource) -> None:
        """Removes a member; one that is not there has left already."""
        group = self.groups.get(call.group)
        if group is not None and call.member_id in group.members:
            group.history.note("left", now, call.member_id)
            membership.remove(self.note_change(group), [call.member_id], now, source)

    def commit(self, call: CommitCall, now: Now, source: TopicSource) -> None:
        """Commits positions; without a member it creates the group.

        Raises GroupNotEmpty, UnknownMember, MemberFenced, GroupsFull, CoordinatorMoved.
        """
        group = self._group_of_member(call.group, now, is_join=call.member_id is None)
        positions.check_topics(call.positions, source)
        member = None if call.member_id is None else find_member(group, call.member_id)
        if member is not None:
            positions.check_member_commit(group, member, call.member_epoch, call.positions)
        elif not call.force:
            check_empty(group, "commit with a member's member_id and member_epoch, or with force")
        positions.check_room(group, call.positions, self.limits, source)
        if member is not None:
            self.keep_alive(member, now)
            member.moved_ms = now.steady_ms
            member.confirmed_epoch = max(member.confirmed_epoch, call.member_epoch)
        self.know(group, call.positions, now, source)
        positions.commit(group, call.positions, now)
        self.add(group)

    def reset(self, call: ResetCall, now: Now, source: TopicSource) -> None:
        """Sets positions in any direction, and ends all tokens; commits of earlier epochs are fenced.

        Raises GroupNotEmpty, UnknownGroup, GroupsFull, CoordinatorMoved.
        """
        group = self.note_change(self.find(call.group))
        if call.resets is not None and call.resets != group.resets:
            return
        if not call.force:
            check_empty(group, "stop its members first, or reset with force")
            sharing.check_idle(group, call.positions)
        positions.check_topics(call.positions, source)
        positions.check_room(group, call.positions, self.limits, source)
        self.know(group, call.positions, now, source)
        if group.settings.kind == SHARE:
            sharing.reset(self, group, call.positions)
        else:
            positions.store(group, call.positions, now)
        group.resets += 1
        group.history.note("reset", now)
        membership.fence(group, [position.slot for position in call.positions])
        for member in group.members.values():
            member.version += 1
            self.woken.add((group.name, member.member_id))

    def configure(self, call: ConfigCall, now: Now, source: TopicSource) -> bool:
        """Creates a group or changes its settings. Returns whether it is new. Raises InvalidConfig, GroupsFull."""
        group, is_new = self.find_or_new(call.group, None, now)
        given = {name: value for name, value in call.config.items() if value is not None}
        group_settings(given)
        config: dict[str, Setting] = {
            name: value for name, value in {**group.config, **call.config}.items() if value is not None
        }
        is_of_kind = group.settings.kind == config.get("kind", CONSUMER)
        check_together(stored_settings(config), given if is_of_kind else config)
        sharing.check_change_of_kind(group, config)
        group.set_config(config)
        failures.shorten(group, now)
        self.note_change(group)
        group.is_changed = True
        group.active_ms = now.wall_ms
        group.history.note("settings_changed", now, detail=", ".join(sorted(call.config)))
        self.add(group)
        if group.members:
            rebalance(group, now, source)
        return is_new

    def push(self, call: PushCall, now: Now, source: TopicSource) -> bool | None:
        """Creates or changes a subscription. Returns if it is new; None: it is not as called for. Raises GroupsFull."""
        existing = self.groups.get(call.group)
        if call.before is not None and (existing is None or existing.definition != call.before):
            return None
        if call.is_new and existing is not None and existing.definition is not None:
            return None
        is_new = existing is None
        limit = self.limits.subscriptions_max
        if is_new and sum(group.definition is not None for group in self.groups.values()) >= limit:
            raise GroupsFull(f"this coordinator has {limit} subscriptions", limit=limit)
        group = self._group_of_member(call.group, now, is_join=True)
        if is_new:
            positions.check_topics(call.positions, source)
            positions.check_room(group, call.positions, self.limits, source)
            self.know(group, call.positions, now, source)
            positions.store(group, call.positions, now)
        group.definition, group.is_definition_changed = call.definition, True
        group.active_ms = now.wall_ms
        self.add(group)
        return is_new

    def delete(self, name: str, now: Now, source: TopicSource) -> None:
        """Deletes a group and its positions. Raises UnknownGroup, GroupNotEmpty."""
        group = self.find(name)
        check_empty(group, "stop its members first, or delete each of them")
        self._delete(group)

    def forget(self, call: ForgetCall, now: Now, source: TopicSource) -> None:
        """Deletes committed positions of a topic. Raises UnknownGroup, GroupNotEmpty, WrongGroupKind."""
        check_empty(self.find(call.group), "stop its members first")
        positions.forget(self._group_of_member(call.group, now, is_join=False), call)

    def forget_shares(self, call: ForgetCall, now: Now, source: TopicSource) -> bool:
        """Forgets where a share group is in a topic. Returns whether it was there.

        Raises UnknownGroup, GroupNotEmpty, WrongGroupKind.
        """
        group = self.find(call.group)
        check_kind(group, SHARE)
        check_empty(group, "stop its members first")
        return sharing.forget(self, group, call.topic)

    def sweep(self, now: Now, source: TopicSource) -> None:
        """Removes members and groups whose time is over, and follows topics that came, grew or went."""
        looks_for_idle = now.steady_ms >= self._idle_look_ms
        if looks_for_idle:
            self._idle_look_ms = now.steady_ms + IDLE_LOOK_MS
            members = [member for group in self.groups.values() for member in group.members.values()]
            self._patterns.keep([member.pattern for member in members if member.pattern is not None])
        if self._patterns.is_used:
            self._patterns.begin_look(source.names())
        if looks_for_idle or any(source.find(topic) != size for topic, size in self._sizes.items()):
            self._sizes = {}
        is_thorough = not self._sizes or self._patterns.is_used  # else it passes over groups that are as they were
        groups = [group for group in self.groups.values() if is_thorough or group.look_ms <= now.steady_ms]
        for group, gone in membership.find_expired(groups, now):
            membership.remove(self.note_change(group), gone, now, source)
        for group in groups:
            if group.settings.kind == SHARE:
                sharing.sweep(self, group, now)
            if not group.members:
                if group.member_count:
                    continue
                if looks_for_idle and group.definition is None and group.is_idle(now.steady_ms):
                    self._delete(group)
            elif self._patterns.is_used and self._follow(group, now, source):
                rebalance(self.note_change(group), now, source)
            elif (
                not group.sizes.items() <= self._sizes.items()
                and (topic := membership.find_resized(group, self._sizes, source)) is not None
            ):
                group.history.note("topics_changed", now, detail=topic)
                rebalance(self.note_change(group), now, source)
            elif looks_for_idle and group.racks:
                membership.follow_racks(self.note_change(group), now, source)

    def wait(self, name: str, member_id: str, now: Now, change: int) -> int | None:
        """Counts an open poll (`change` 1) or its end (-1). Returns the member's version; None: it is not a member.

        Without a member id it returns the version of what a share group may hand out.
        """
        group = self.groups.get(name)
        if group is not None and group.share is not None and not member_id:
            return group.share.version
        member = None if group is None else group.members.get(member_id)
        if member is None:
            return None
        member.waiting = max(0, member.waiting + change)
        self.keep_alive(member, now)
        return member.version

    def rows(self) -> list[GroupRow]:
        return [group_row(group) for group in self.groups.values()]

    def describe(self, name: str, now: Now, source: TopicSource) -> GroupView:
        """Describes a group for people. Raises UnknownGroup."""
        return group_view(self.find(name), now)

    def explain(self, name: str, now: Now, source: TopicSource) -> Activity:
        """Returns what happens in a group. Raises UnknownGroup."""
        return activity(self.find(name), self.describe(name, now, source), now, source)

    def _group_of_member(self, name: str, now: Now, *, is_join: bool) -> Group:
        """Returns the group, or a new one for a call that creates it.

        Raises UnknownGroup, GroupsFull, WrongGroupKind.
        """
        if not is_join:
            self.find(name)
        group, _ = self.find_or_new(name, CONSUMER, now)
        return self.note_change(group)

    def _join(
        self,
        group: Group,
        member_id: str,
        interest: Subscription,
        call: HeartbeatCall | PollCall,
        timeouts_ms: tuple[int | None, int | None],
        now: Now,
        source: TopicSource,
    ) -> Member:
        self.check_new_member(group)
        kafka = call.kafka if isinstance(call, HeartbeatCall) else None
        member = membership.join(group, member_id, interest, call.client, timeouts_ms, self.limits, now, source, kafka)
        self.add(group)
        return member

    def _subscription(self, call: HeartbeatCall | PollCall, source: TopicSource) -> Subscription | None:
        """Returns the topics that a call asks for; None: those of the member stay."""
        if call.topics is None:
            return None
        group = self.groups.get(call.group)
        member = None if group is None else group.members.get(call.member_id)
        before = frozenset[str]() if member is None else member.topics
        return subscription(self._patterns, call.topics, call.pattern, source, self.limits.topics_max, before)

    def _follow(self, group: Group, now: Now, source: TopicSource) -> bool:
        members = [member for member in group.members.values() if member.pattern is not None]
        return bool(members) and follow(group, members, self._patterns, now, source, self.limits.topics_max)

    def _delete(self, group: Group) -> None:
        del self.groups[group.name]
        self.note_change(group).is_deleted = group.is_changed = True
        sharing.delete(group)
        group.is_definition_changed, group.definition = group.definition is not None, None
        group.changed_offsets.update(group.offsets)
        group.offsets.clear()

    def know(self, group: Group, positions: Iterable[Position], now: Now, source: TopicSource) -> None:
        for position in positions:
            known_topic, size = group.topics.get(position.topic), source.find(position.topic)
            if size is not None and (known_topic is None or known_topic.topic_id != size.topic_id):
                membership.know(group, position.topic, KnownTopic(size.topic_id, size.partitions))
                if group.members:
                    rebalance(group, now, source)

    def keep_alive(self, member: Member, now: Now) -> None:
        member.called_ms = now.steady_ms
        member.session_ends_ms = now.steady_ms + member.session_timeout_ms
