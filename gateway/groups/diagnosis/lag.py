"""The causes of the lag of a consumer group, those that stop it first."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from gateway.groups.diagnosis.activity import MemberActivity
from gateway.groups.diagnosis.facts import (
    FACTOR,
    LARGE_LAG,
    OFTEN,
    STUCK_MS,
    Facts,
    Finding,
    missing,
    seconds,
    unreachable,
)
from gateway.groups.model.values import Slot


def causes_of_lag(facts: Facts) -> list[Finding]:
    """Returns why a consumer group lags."""
    return [finding for rule in _RULES for finding in rule(facts)] or list(_too_slow(facts))


def _absent(facts: Facts) -> Iterator[Finding]:
    records = sum(lag.records for lag in facts.behind.values())
    if not facts.activity.view.members and records:
        yield Finding("no_members", f"{records} records wait and the group has no members: start one")


def _without_position(facts: Facts) -> Iterator[Finding]:
    if facts.settings.start != "error":
        return
    for position in facts.activity.view.offsets:
        if position.offset is None:
            name = f"partition {position.partition} of topic {position.topic}"
            text = f"{name} has no position, and start is error: commit one"
            yield Finding("no_position", text, position.member_id or None, position.topic, position.partition)


def _failed_records(facts: Facts) -> Iterator[Finding]:
    """A partition waits for a record that its member has reported."""
    now_ms = facts.activity.now_ms
    for record in facts.activity.failed:
        times = f"{record.failures} time" + "s" * (record.failures > 1)
        text = f"offset {record.offset} of partition {record.partition} of topic {record.topic} failed {times}"
        if record.error:
            text += f" ({record.error})"
        text += f", and its partition waits for it: it is delivered again in {seconds(record.left_ms)}"
        if record.left_ms <= 0:
            text = text.replace("is delivered again in 0 s", "may be delivered now")
        topic, limit = facts.settings.dead_letter_topic, facts.settings.deliveries_max
        text += "; without a dead_letter_topic it is not given up" if topic is None else f"; the limit is {limit} times"
        owner, until_ms = facts.owners.get(Slot(record.topic, record.partition)), now_ms + record.left_ms
        yield Finding("record_failed", text, owner, record.topic, record.partition, until_ms)


def _poison(facts: Facts) -> Iterator[Finding]:
    """Reading began at one position again and again, each time with the record in place."""
    now_ms, failed = facts.activity.now_ms, {(record.topic, record.partition) for record in facts.activity.failed}
    for begun in facts.activity.begun:
        if (begun.topic, begun.partition) in failed:
            continue
        behind = facts.behind.get(slot := Slot(begun.topic, begun.partition))
        is_old = behind is not None and behind.records > 0 and now_ms - behind.age_ms <= begun.times_ms[0]
        if begun.count >= OFTEN and is_old and _offset(facts, slot) == begun.offset:
            text = (
                f"offset {begun.offset} of partition {begun.partition} of topic {begun.topic} was delivered "
                f"{begun.count} times and never committed: look at this record, then commit past it"
            )
            yield Finding("poison_record", text, facts.owners.get(slot), begun.topic, begun.partition)


def _holding(facts: Facts) -> Iterator[Finding]:
    for member in facts.activity.members:
        if member.revoking_ms and member.revoking_ms >= facts.settings.heartbeat_ms:
            text = (
                f"member {member.member_id} has kept revoked partitions for {seconds(member.revoking_ms)}: it gives "
                "them up with its next poll, or is removed after rebalance_timeout_ms"
            )
            yield Finding("slow_revocation", text, member.member_id)


def _members(facts: Facts) -> Iterator[Finding]:
    """A member whose old records wait is silent, or calls and commits nothing."""
    for member in facts.activity.members:
        if not member.is_polling and member.silent_ms >= member.session_timeout_ms // 2:
            text = (
                f"member {member.member_id} has not called for {seconds(member.silent_ms)} of its session of "
                f"{seconds(member.session_timeout_ms)}: its process hangs, is gone, or works long without heartbeats"
            )
            yield Finding("silent_member", text, member.member_id)
        elif member.unmoved_ms >= STUCK_MS and facts.lagging(member.member_id):
            yield _stuck_member(facts, member)


def _stuck_member(facts: Facts, member: MemberActivity) -> Finding:
    text = f"has committed nothing for {seconds(member.unmoved_ms)}"
    if not facts.settings.auto_commit:
        text = f"member {member.member_id} reads and {text}; auto_commit is false: PUT its offsets"
        return Finding("no_commits", text, member.member_id)
    return Finding(
        "stuck_member", f"member {member.member_id} calls and {text}: its work does not end", member.member_id
    )


def _uneven(facts: Facts) -> Iterator[Finding]:
    """One partition has most of the lag, or all partitions of one member have it."""
    records = {slot: lag.records for slot, lag in facts.behind.items()}
    for member in facts.activity.view.members:
        owned = [count for slot, count in records.items() if facts.owners.get(slot) == member.member_id]
        others = [count for slot, count in records.items() if facts.owners.get(slot) != member.member_id]
        if len(owned) > 1 and others and min(owned) >= LARGE_LAG and min(owned) >= FACTOR * median(others):
            text = f"each partition of member {member.member_id} is {FACTOR} times as far behind as others: it is slow"
            yield Finding("slow_member", text, member.member_id)
            return
    for slot, count in records.items():
        others = [other for other_slot, other in records.items() if other_slot != slot]
        if others and count >= LARGE_LAG and count >= FACTOR * max(1, *others):
            text = (
                f"partition {slot.partition} of topic {slot.topic} has {count} of {sum(records.values())} records: its "
                "keys are hot; spread them, or make the work on it faster"
            )
            yield Finding("hot_partition", text, facts.owners.get(slot), *slot)


def _too_slow(facts: Facts) -> Iterator[Finding]:
    waiting = [lag for lag in facts.behind.values() if lag.records and lag.age_ms >= STUCK_MS]
    if waiting and facts.activity.view.members:
        text = f"{sum(lag.records for lag in waiting)} records wait and all members work: add members or partitions"
        yield Finding("too_slow", text)


def _offset(facts: Facts, slot: Slot) -> int | None:
    views = facts.activity.view.offsets
    return next((position.offset for position in views if (position.topic, position.partition) == slot), None)


_RULES = (
    _absent,
    missing,
    unreachable,
    _without_position,
    _failed_records,
    _poison,
    _holding,
    _members,
    _uneven,
)
