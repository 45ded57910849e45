"""The calls on share groups, as decisions of their coordinator: acquire, settle, dead letters, sweep.

A share group has no members: any caller acquires records. The state of the records is in gateway/groups/share.
Acquisitions are stored with the next outcome or sweep, because locks end with the coordinator; outcomes are stored
before they are answered.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from gateway.groups.core import membership
from gateway.groups.core.group_table import GroupTable, check_kind
from gateway.groups.model.errors import GroupNotEmpty, LockUnknown, NoPosition, WrongGroupKind
from gateway.groups.model.settings import CONSUMER, SHARE
from gateway.groups.model.state import Group, KnownTopic
from gateway.groups.model.values import Now, OffsetView, Position, Setting, Slot, TopicSource
from gateway.groups.share.partition import SharePartition, Span
from gateway.groups.share.state import ShareState
from gateway.groups.share.values import (
    AcquireCall,
    Acquired,
    Bound,
    DeadLetter,
    HolderView,
    Outcome,
    Place,
    Refused,
    SettleCall,
    Settled,
    Settlement,
    ShareView,
    ShortenCall,
)

DEAD_LETTERS_AT_ONCE = 100


def topics(core: GroupTable, name: str, now: Now, source: TopicSource) -> list[str]:
    """Returns the topics of a share group that exist. Raises UnknownGroup, WrongGroupKind."""
    group = core.find(name)
    check_kind(group, SHARE)
    return sorted(topic for topic in group.topics if source.find(topic) is not None)


def acquire(core: GroupTable, call: AcquireCall, now: Now, source: TopicSource) -> Acquired:
    """Fills a lock with records, and creates the group if it is new.

    Raises WrongGroupKind, GroupsFull, NoPosition, CoordinatorMoved.
    """
    group, is_new = core.find_or_new(call.group, SHARE, now)
    bounds = [bound for bound in call.bounds if _is_known(source, bound)]
    share = group.share or ShareState()
    if group.settings.start == "error":
        _check_positions(share, group, bounds)
    group.share = share
    share.asked_ms = now.steady_ms
    rules = group.settings.rules()
    if is_new:
        core.add(group)
    note_activity(core, group, now)
    _expire(group, share, now)
    for bound in bounds:
        _follow(core, group, share, bound, source)
    for run in call.keys:
        if (partition := share.partitions.get((run.topic, run.partition))) is not None:
            partition.learn(run, rules)
    lock_ms = group.settings.lock_ms if call.lock_ms is None else call.lock_ms
    lock = share.lock(call.lock, call.member_id, lock_ms, now.steady_ms)
    ends = [((bound.topic, bound.partition), bound.high_watermark) for bound in bounds]
    held = lock.count
    for level in by_priority(ends, group.settings.priorities):
        share.acquire(lock, level, call.max_records, now.wall_ms, rules)
    core.count(acquired=lock.count - held)
    if not lock.granted:
        share.drop(lock)
    to_learn: list[Place] = []
    if rules.is_ordered and lock.count < call.max_records:
        for bound in bounds:
            span = share.partitions[bound.topic, bound.partition].keys_to_learn(bound.high_watermark, rules)
            if span is not None:
                to_learn.append(Place(bound.topic, bound.topic_id, bound.partition, span.first, span.last + 1))
    _wake(core, group, share)
    left_ms = max(0, lock.until_ms - now.steady_ms)
    if granted := share.holds(lock):
        return Acquired(granted, left_ms, keys_to_learn=tuple(to_learn), version=share.version, resets=group.resets)
    slots = [slot for slot, _ in ends]
    return Acquired(
        (),
        left_ms,
        tuple(_place(share.partitions[bound.topic, bound.partition], bound, rules.in_flight_max) for bound in bounds),
        tuple(to_learn),
        share.due_ms(slots, now.steady_ms, now.wall_ms),
        share.version,
        group.resets,
    )


def settle(core: GroupTable, call: SettleCall, now: Now, source: TopicSource) -> Settled:
    """Gives records of a lock their outcome. Raises UnknownGroup, WrongGroupKind, LockUnknown."""
    group = core.find(call.group)
    check_kind(group, SHARE)
    share = _share(group)
    if call.member_id:
        return _settle_of_member(core, group, call, now)
    if call.lock not in share.locks:
        text = (
            f"group {group.name!r} does not know this lock: it was over a while ago, or the coordinator was replaced; "
            "outcomes that were sent before may be stored"
        )
        raise LockUnknown(
            text, hint="undo nothing; acquire again: records without a stored outcome are delivered again"
        )
    if call.checked is not None:
        unchecked = {granted.topic for granted in share.locks[call.lock].granted}.difference(call.checked)
        if unchecked:
            return Settled(0, (), tuple(sorted(unchecked)))
    rules = group.settings.rules()
    core.note_change(group)
    _expire(group, share, now)
    settlements: Iterable[Settlement] = call.settlements
    if call.outcome is not None:
        settlements = share.all_of(call.lock, Settlement("", 0, 0, 0, call.outcome, call.time_ms, call.error))
    settlements = [_with_lock_time(settlement, group.settings.lock_ms) for settlement in settlements]
    count, refused = share.settle(call.lock, settlements, now.steady_ms, now.wall_ms, rules)
    core.count(settled=count)
    _wake(core, group, share)
    return Settled(count, tuple(refused))


def _settle_of_member(core: GroupTable, group: Group, call: SettleCall, now: Now) -> Settled:
    """Gives records an outcome that a caller holds by any lock of its own."""
    share, rules = _share(group), group.settings.rules()
    core.note_change(group)
    _expire(group, share, now)
    count, refused = 0, list[Refused]()
    for settlement in call.settlements if call.outcome is None else share.held_by(call.member_id, call):
        settlement = _with_lock_time(settlement, group.settings.lock_ms)
        slot, next_offset = (settlement.topic, settlement.partition), settlement.first
        for lock, span in share.locks_of(call.member_id, slot, Span(settlement.first, settlement.last)):
            if span.first > next_offset:
                refused.append(Refused(*slot, next_offset, span.first - 1, False))
            part = settlement._replace(first=span.first, last=span.last)
            settled, others = share.settle(lock, [part], now.steady_ms, now.wall_ms, rules)
            count, next_offset = count + settled, span.last + 1
            refused += others
        if next_offset <= settlement.last:
            refused.append(Refused(*slot, next_offset, settlement.last, False))
    core.count(settled=count)
    _wake(core, group, share)
    return Settled(count, tuple(refused))


def shorten(core: GroupTable, call: ShortenCall, now: Now, source: TopicSource) -> None:
    """Forgets what a shorter log has no more. A second report of the same changes nothing."""
    group = core.groups.get(call.group)
    if group is None or group.share is None or group.resets != call.resets:
        return
    partition = group.share.partitions.get((call.topic, call.partition))
    if partition is not None and call.high_watermark < partition.window.end:
        partition.shorten(call.high_watermark)
        group.resets += 1
        group.is_changed = True
        core.note_change(group)


def dead_letters(core: GroupTable, now: Now, without: Container[tuple[str, str]] = ()) -> list[DeadLetter]:
    """Returns records that wait to be copied to a dead-letter topic, but for some topics of groups."""
    letters, left = list[DeadLetter](), DEAD_LETTERS_AT_ONCE
    for group in core.groups.values():
        topic = group.settings.dead_letter_topic
        if group.share is None or topic is None:
            continue
        for slot, partition in group.share.partitions.items():
            if (group.name, slot[0]) in without:
                continue
            for run in partition.dead():
                last = min(run.last, run.first + left - 1)
                reason = "rejected" if run.ready_ms else "deliveries_max"
                letters.append(
                    DeadLetter(
                        group.name,
                        topic,
                        slot[0],
                        partition.topic_id,
                        slot[1],
                        run.first,
                        last,
                        run.deliveries,
                        reason,
                        run.error,
                    )
                )
                left -= last - run.first + 1
                if left <= 0:
                    return letters
    return letters


def keep_dead_letters(core: GroupTable, name: str, error: str, now: Now) -> None:
    """Notes why dead letters of a group were not copied. They wait until they are."""
    group = core.groups.get(name)
    if group is not None and group.share is not None and group.share.copy_error != error:
        group.share.copy_error = error
        group.history.note("dead_letters_failed", now, detail=error)


def bury(core: GroupTable, letter: DeadLetter, now: Now, *, is_copied: bool) -> None:
    """Ends dead letters that are copied, or whose records are gone."""
    group = core.groups.get(letter.group)
    if group is None or group.share is None:
        return
    group.share.copy_error = ""
    partition = group.share.partitions.get((letter.topic, letter.partition))
    if partition is not None and partition.topic_id == letter.topic_id:
        before = partition.dead_letters
        partition.bury(Span(letter.first, letter.last), is_copied=is_copied)
        if count := partition.dead_letters - before:
            group.dead_letters += count
            group.history.note("dead_lettered", now, detail=letter.dead_letter_topic, count=count)
        core.note_change(group)
        group.share.note_freed()
        _wake(core, group, group.share)


def sweep(core: GroupTable, group: Group, now: Now) -> None:
    """Ends locks, drops dead letters without a topic, and stores what was acquired."""
    share = _share(group)
    for member in [one for one in group.share_members.values() if one.session_ends_ms <= now.steady_ms]:
        del group.share_members[member.member_id]
        group.history.note("session_expired", now, member.member_id)
    _expire(group, share, now)
    if group.settings.dead_letter_topic is None:
        for partition in share.partitions.values():
            for run in partition.dead():
                partition.bury(Span(run.first, run.last), is_copied=False)
        share.note_freed()
    if any(partition.has_changes for partition in share.partitions.values()):
        core.note_change(group)
    _wake(core, group, share)


def _expire(group: Group, share: ShareState, now: Now) -> None:
    for caller in share.expire(now.steady_ms, now.wall_ms, group.settings.rules()):
        group.history.note("lock_ended", now, caller)


def begin(group: Group, now: Now) -> None:
    """Makes the state of a share group from its stored records."""
    share = _share(group)
    share.begin(now.steady_ms)
    for slot, partition in list(share.partitions.items()):
        if partition.topic_id:
            partition.begin()
        else:
            del share.partitions[slot]


def check_idle(group: Group, positions: Iterable[Position]) -> None:
    """Checks that no caller holds records of these partitions. Raises GroupNotEmpty."""
    slots = {(position.topic, position.partition) for position in positions}
    share = group.share or ShareState()
    if any((held.topic, held.partition) in slots for lock in share.locks.values() for held in share.holds(lock)):
        hint = "wait for its workers, or reset with force"
        raise GroupNotEmpty(f"group {group.name!r} has records in flight", hint=hint)


def reset(core: GroupTable, group: Group, positions: Iterable[Position]) -> None:
    """Moves a share group to other positions."""
    share = _share(group)
    for position in positions:
        partition = share.partitions.get((position.topic, position.partition))
        if partition is not None and partition.topic_id == position.topic_id:
            partition.reset(position.offset)
            continue
        if partition is not None:
            share.remove((position.topic, position.partition))
        share.partitions[position.topic, position.partition] = SharePartition(position.topic_id, position.offset)
    share.version += 1
    _wake(core, group, share)


def forget(core: GroupTable, group: Group, topic: str) -> bool:
    """Forgets the partitions of a topic. Returns whether there were some. Raises GroupNotEmpty."""
    share = _share(group)
    slots = [slot for slot in share.partitions if slot[0] == topic]
    check_idle(group, [Position(name, "", number, 0) for name, number in slots])
    for slot in slots:
        share.remove(slot)
    core.note_change(group)
    if group.topics.pop(topic, None) is not None:
        group.is_changed = True
    return bool(slots)


def check_change_of_kind(group: Group, config: Mapping[str, Setting]) -> None:
    """Checks that a group which has read something keeps its kind. Raises WrongGroupKind."""
    has_state = bool(group.members or group.offsets or (group.share is not None and group.share.partitions))
    if has_state and config.get("kind", CONSUMER) != group.settings.kind:
        text = f"group {group.name!r} is of kind {group.settings.kind} and has positions"
        raise WrongGroupKind(text, hint="delete the group first")


def delete(group: Group) -> None:
    """Removes the records of a share group."""
    if group.share is not None:
        for slot in list(group.share.partitions):
            group.share.remove(slot)


def offsets(group: Group) -> tuple[OffsetView, ...]:
    """Returns the start offsets of a share group, as committed positions."""
    partitions = {} if group.share is None else group.share.partitions
    return tuple(
        OffsetView(topic, partition.topic_id, number, partition.window.start, "", partition.active_ms, "")
        for (topic, number), partition in sorted(partitions.items())
    )


def views(group: Group, now: Now) -> tuple[tuple[ShareView, ...], tuple[HolderView, ...]]:
    """Returns the partitions of a share group, and the callers that hold records."""
    if group.share is None:
        return (), ()
    return group.share.views(now.wall_ms), group.share.holders(now.steady_ms)


def _share(group: Group) -> ShareState:
    if group.share is None:
        group.share = ShareState()
    return group.share


def _is_known(source: TopicSource, bound: Bound) -> bool:
    size = source.find(bound.topic)
    return size is not None and size.topic_id == bound.topic_id


def _check_positions(share: ShareState, group: Group, bounds: Iterable[Bound]) -> None:
    """Raises NoPosition."""
    for bound in bounds:
        topic = group.topics.get(bound.topic)
        is_later = topic is not None and bound.partition >= topic.first_partitions
        if (bound.topic, bound.partition) not in share.partitions and not is_later:
            raise NoPosition(
                f"group {group.name!r} has no position of partition {bound.partition} of topic {bound.topic!r}, and "
                "its setting start is error",
                hint="reset its positions",
            )


def _follow(core: GroupTable, group: Group, share: ShareState, bound: Bound, source: TopicSource) -> None:
    """Begins a partition that is new to the group, and skips what its log has no more."""
    size = source.find(bound.topic)
    assert size is not None
    topic = group.topics.get(bound.topic)
    if topic is None or topic.topic_id != size.topic_id:
        membership.know(group, bound.topic, KnownTopic(size.topic_id, size.partitions))
        for slot in [slot for slot in share.partitions if slot[0] == bound.topic]:
            share.remove(slot)
        core.note_change(group)
    slot = Slot(bound.topic, bound.partition)
    partition = share.partitions.get(slot)
    if partition is None:
        is_first = bound.partition < group.topics[bound.topic].first_partitions
        is_latest = is_first and group.settings.start == "latest"
        start = bound.high_watermark if is_latest else bound.log_start
        share.partitions[slot] = SharePartition(bound.topic_id, start)
        core.note_change(group)
    else:
        partition.follow(bound.log_start)


def by_priority(
    ends: list[tuple[tuple[str, int], int]], priorities: tuple[str, ...]
) -> Iterator[list[tuple[tuple[str, int], int]]]:
    """Yields partitions in the order of their topics' priority, those of one priority together."""
    for name in priorities:
        if level := [end for end in ends if end[0][0] == name]:
            yield level
    yield [end for end in ends if end[0][0] not in priorities]


def _place(partition: SharePartition, bound: Bound, in_flight_max: int) -> Place:
    window = partition.window
    return Place(bound.topic, bound.topic_id, bound.partition, window.end, window.start + in_flight_max)


def _with_lock_time(settlement: Settlement, lock_ms: int) -> Settlement:
    is_without = settlement.outcome == Outcome.EXTEND and settlement.time_ms is None
    return settlement._replace(time_ms=lock_ms) if is_without else settlement


def note_activity(core: GroupTable, group: Group, now: Now) -> None:
    """Keeps a group from being forgotten, also by a later coordinator."""
    group.idle_since_ms = None
    if abs(now.wall_ms - group.active_ms) > group.settings.offsets_retention_ms // 4:
        group.active_ms = now.wall_ms
        group.is_changed = True
        core.note_change(group)


def _wake(core: GroupTable, group: Group, share: ShareState) -> None:
    if share.version != share.woken:
        share.woken = share.version
        core.woken.add((group.name, ""))
