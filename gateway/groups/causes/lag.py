"""The causes of the lag of a consumer group, those that stop it first."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from gateway.groups.causes.activity import MemberActivity
from gateway.groups.causes.facts import (
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
    return [one for rule in _RULES for one in rule(facts)] or list(_too_slow(facts))


def _absent(facts: Facts) -> Iterator[Finding]:
    records = sum(one.records for one in facts.behind.values())
    if not facts.activity.view.members and records:
        yield Finding("no_members", f"{records} records wait and the group has no members: start one")


def _without_position(facts: Facts) -> Iterator[Finding]:
    if facts.settings.start != "error":
        return
    for one in facts.activity.view.offsets:
        if one.offset is None:
            text = f"partition {one.partition} of topic {one.topic} has no position, and start is error: commit one"
            yield Finding("no_position", text, one.member_id or None, one.topic, one.partition)


def _failed(facts: Facts) -> Iterator[Finding]:
    """A partition waits for a record that its member has reported."""
    now_ms = facts.activity.now_ms
    for one in facts.activity.failed:
        times = f"{one.failures} time" + "s" * (one.failures > 1)
        text = f"offset {one.offset} of partition {one.partition} of topic {one.topic} failed {times}"
        if one.error:
            text += f" ({one.error})"
        text += f", and its partition waits for it: it is delivered again in {seconds(one.left_ms)}"
        if one.left_ms <= 0:
            text = text.replace("is delivered again in 0 s", "may be delivered now")
        topic, limit = facts.settings.dead_letter_topic, facts.settings.deliveries_max
        text += "; without a dead_letter_topic it is not given up" if topic is None else f"; the limit is {limit} times"
        owner, until_ms = facts.owners.get(Slot(one.topic, one.partition)), now_ms + one.left_ms
        yield Finding("record_failed", text, owner, one.topic, one.partition, until_ms)


def _poison(facts: Facts) -> Iterator[Finding]:
    """Reading began at one position again and again, each time with the record in place."""
    now_ms, failed = facts.activity.now_ms, {(one.topic, one.partition) for one in facts.activity.failed}
    for one in facts.activity.begun:
        if (one.topic, one.partition) in failed:
            continue
        behind = facts.behind.get(slot := Slot(one.topic, one.partition))
        is_old = behind is not None and behind.records > 0 and now_ms - behind.age_ms <= one.times_ms[0]
        if one.count >= OFTEN and is_old and _offset(facts, slot) == one.offset:
            text = (
                f"offset {one.offset} of partition {one.partition} of topic {one.topic} was delivered {one.count} "
                "times and never committed: look at this record, then commit past it"
            )
            yield Finding("poison_record", text, facts.owners.get(slot), one.topic, one.partition)


def _holding(facts: Facts) -> Iterator[Finding]:
    for one in facts.activity.members:
        if one.revoking_ms and one.revoking_ms >= facts.settings.heartbeat_ms:
            text = (
                f"member {one.member_id} has kept revoked partitions for {seconds(one.revoking_ms)}: it gives them up "
                "with its next poll, or is removed after rebalance_timeout_ms"
            )
            yield Finding("slow_revocation", text, one.member_id)


def _members(facts: Facts) -> Iterator[Finding]:
    """A member whose old records wait is silent, or calls and commits nothing."""
    for one in facts.activity.members:
        if not one.is_polling and one.silent_ms >= one.session_timeout_ms // 2:
            text = (
                f"member {one.member_id} has not called for {seconds(one.silent_ms)} of its session of "
                f"{seconds(one.session_timeout_ms)}: its process hangs, is gone, or works long without heartbeats"
            )
            yield Finding("silent_member", text, one.member_id)
        elif one.unmoved_ms >= STUCK_MS and facts.lagging(one.member_id):
            yield _stuck(facts, one)


def _stuck(facts: Facts, one: MemberActivity) -> Finding:
    text = f"has committed nothing for {seconds(one.unmoved_ms)}"
    if not facts.settings.auto_commit:
        text = f"member {one.member_id} reads and {text}; auto_commit is false: PUT its offsets"
        return Finding("no_commits", text, one.member_id)
    return Finding("stuck_member", f"member {one.member_id} calls and {text}: its work does not end", one.member_id)


def _uneven(facts: Facts) -> Iterator[Finding]:
    """One partition has most of the lag, or all partitions of one member have it."""
    records = {slot: one.records for slot, one in facts.behind.items()}
    for member in facts.activity.view.members:
        owned = [count for slot, count in records.items() if facts.owners.get(slot) == member.member_id]
        others = [count for slot, count in records.items() if facts.owners.get(slot) != member.member_id]
        if len(owned) > 1 and others and min(owned) >= LARGE_LAG and min(owned) >= FACTOR * median(others):
            text = f"each partition of member {member.member_id} is {FACTOR} times as far behind as others: it is slow"
            yield Finding("slow_member", text, member.member_id)
            return
    for slot, count in records.items():
        others = [other for one, other in records.items() if one != slot]
        if others and count >= LARGE_LAG and count >= FACTOR * max(1, *others):
            text = (
                f"partition {slot.partition} of topic {slot.topic} has {count} of {sum(records.values())} records: its "
                "keys are hot; spread them, or make the work on it faster"
            )
            yield Finding("hot_partition", text, facts.owners.get(slot), *slot)


def _too_slow(facts: Facts) -> Iterator[Finding]:
    waiting = [one for one in facts.behind.values() if one.records and one.age_ms >= STUCK_MS]
    if waiting and facts.activity.view.members:
        text = f"{sum(one.records for one in waiting)} records wait and all members work: add members or partitions"
        yield Finding("too_slow", text)


def _offset(facts: Facts, slot: Slot) -> int | None:
    views = facts.activity.view.offsets
    return next((one.offset for one in views if (one.topic, one.partition) == slot), None)


_RULES = (
    _absent,
    missing,
    unreachable,
    _without_position,
    _failed,
    _poison,
    _holding,
    _members,
    _uneven,
)
