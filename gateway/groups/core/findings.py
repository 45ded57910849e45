"""Why a group lags or rebalances: findings from its activity and the lag of its partitions. Pure.

Each finding names one cause and what to do about it. Thresholds are where a healthy group seldom is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import median
from typing import NamedTuple

from msgspec import Struct

from gateway.groups.core.activity import Activity, MemberActivity
from gateway.groups.core.group_table import SHARE
from gateway.groups.core.settings import GroupSettings, stored_settings
from gateway.groups.core.values import Slot

STUCK_MS = 60_000  # without a commit, while an older record waits
RECENT_MS = 600_000  # events older than this explain nothing of now
OFTEN = 3  # events of one member in that time
LARGE_LAG = 1_000  # records; a smaller lag is not called hot or slow
FACTOR = 10  # how many times the lag of the others


class Behind(NamedTuple):
    """How far a partition is behind: records, and the age of the first of them."""

    records: int
    age_ms: int


class Finding(Struct, frozen=True):
    """One cause. `member_id`, `topic` and `partition` name where it is, if it is in one place."""

    cause: str
    text: str
    member_id: str | None = None
    topic: str | None = None
    partition: int | None = None


class _Facts(NamedTuple):
    """`behind` lacks partitions without a position, and those whose leader cannot be asked."""

    activity: Activity
    settings: GroupSettings
    behind: Mapping[Slot, Behind]
    owners: Mapping[Slot, str]
    recent: Counter[tuple[str, str]]  # events of the last minutes by cause and member

    def lagging(self, member_id: str) -> dict[Slot, Behind]:
        owned = {slot: one for slot, one in self.behind.items() if self.owners.get(slot) == member_id}
        return {slot: one for slot, one in owned.items() if one.records and one.age_ms >= STUCK_MS}


def findings(activity: Activity, behind: Mapping[Slot, Behind]) -> list[Finding]:
    """Returns the causes why a group lags or rebalances, those that stop it first."""
    recent: Counter[tuple[str, str]] = Counter()
    for event in activity.events:
        if event.at_ms > activity.now_ms - RECENT_MS:
            recent[event.cause, event.member_id] += event.count
    owners = {Slot(one.topic, one.partition): one.member_id for one in activity.view.offsets if one.member_id}
    facts = _Facts(activity, stored_settings(activity.view.config), behind, owners, recent)
    if facts.settings.kind == SHARE:  # its members hold records, not partitions
        return [*_unreachable(facts), *_recent(facts)]
    found = [one for rule in _OF_LAG for one in rule(facts)]
    return [*(found or _too_slow(facts)), *(one for rule in _OF_REBALANCES for one in rule(facts))]


def _absent(facts: _Facts) -> Iterator[Finding]:
    records = sum(one.records for one in facts.behind.values())
    if not facts.activity.view.members and records:
        yield Finding("no_members", f"{records} records wait and the group has no members: start one")


def _missing_topics(facts: _Facts) -> Iterator[Finding]:
    for topic in facts.activity.missing:
        yield Finding(
            "topic_missing", f"members subscribe to topic {topic}, which does not exist: create it", topic=topic
        )


def _unreachable(facts: _Facts) -> Iterator[Finding]:
    for one in facts.activity.view.offsets:
        if one.offset is not None and Slot(one.topic, one.partition) not in facts.behind:
            text = f"the leader of partition {one.partition} of topic {one.topic} does not answer: see penstock doctor"
            yield Finding("partition_unreachable", text, one.member_id or None, one.topic, one.partition)


def _without_position(facts: _Facts) -> Iterator[Finding]:
    if facts.settings.start != "error":
        return
    for one in facts.activity.view.offsets:
        if one.offset is None:
            text = f"partition {one.partition} of topic {one.topic} has no position, and start is error: commit one"
            yield Finding("no_position", text, one.member_id or None, one.topic, one.partition)


def _poison(facts: _Facts) -> Iterator[Finding]:
    """Reading began at one position again and again, each time with the record in place."""
    now_ms = facts.activity.now_ms
    for one in facts.activity.begun:
        behind = facts.behind.get(slot := Slot(one.topic, one.partition))
        is_old = behind is not None and behind.records > 0 and now_ms - behind.age_ms <= one.times_ms[0]
        if one.count >= OFTEN and is_old and _offset(facts, slot) == one.offset:
            text = (
                f"offset {one.offset} of partition {one.partition} of topic {one.topic} was delivered {one.count} "
                "times and never committed: look at this record, then commit past it"
            )
            yield Finding("poison_record", text, facts.owners.get(slot), one.topic, one.partition)


def _holding(facts: _Facts) -> Iterator[Finding]:
    for one in facts.activity.members:
        if one.revoking_ms and one.revoking_ms >= facts.settings.heartbeat_ms:
            text = (
                f"member {one.member_id} has kept revoked partitions for {_s(one.revoking_ms)}: it gives them up with "
                "its next poll, or is removed after rebalance_timeout_ms"
            )
            yield Finding("slow_revocation", text, one.member_id)


def _members(facts: _Facts) -> Iterator[Finding]:
    """A member whose old records wait is silent, or calls and commits nothing."""
    for one in facts.activity.members:
        if not one.is_polling and one.silent_ms >= one.session_timeout_ms // 2:
            text = (
                f"member {one.member_id} has not called for {_s(one.silent_ms)} of its session of "
                f"{_s(one.session_timeout_ms)}: its process hangs, is gone, or works long without heartbeats"
            )
            yield Finding("silent_member", text, one.member_id)
        elif one.unmoved_ms >= STUCK_MS and facts.lagging(one.member_id):
            yield _stuck(facts, one)


def _stuck(facts: _Facts, one: MemberActivity) -> Finding:
    if not facts.settings.auto_commit:
        text = f"member {one.member_id} reads and has committed nothing for {_s(one.unmoved_ms)}; auto_commit is false"
        return Finding("no_commits", f"{text}: PUT its offsets", one.member_id)
    text = f"member {one.member_id} calls and has committed nothing for {_s(one.unmoved_ms)}: its work does not end"
    return Finding("stuck_member", text, one.member_id)


def _uneven(facts: _Facts) -> Iterator[Finding]:
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


def _rebalances(facts: _Facts) -> Iterator[Finding]:
    members = sorted({member_id for _, member_id in facts.recent if member_id})
    for member_id in members:
        expired = facts.recent["session_expired", member_id]
        removed = facts.recent["rebalance_timed_out", member_id]
        again = sum(facts.recent[cause, member_id] for cause in ("joined", "joined_again")) - expired - removed
        if expired >= OFTEN:
            text = f"the session of member {member_id} ended {expired} times in 10 minutes"
            hint = "send heartbeats during long work, or raise session_timeout_ms"
            yield Finding("sessions_expire", f"{text}: {hint}", member_id)
        elif removed >= OFTEN:
            text = f"member {member_id} was removed {removed} times in 10 minutes for keeping revoked partitions"
            yield Finding("rebalance_timeouts", f"{text}: poll more often, or raise rebalance_timeout_ms", member_id)
        elif again > OFTEN:
            yield Finding(
                "member_restarts", f"member {member_id} joined {again} times in 10 minutes: it restarts", member_id
            )
    strangers = [member_id for member_id in members if facts.recent["joined", member_id] == 1]
    present = {one.member_id for one in facts.activity.members}
    gone = [member_id for member_id in strangers if member_id not in present]
    if len(gone) > OFTEN:
        text = (
            f"{len(gone)} members joined and went within 10 minutes: give each worker a name that survives its restart"
        )
        yield Finding("new_names", text)


def _recent(facts: _Facts) -> Iterator[Finding]:
    for cause, text in (
        ("coordinator_started", "the coordinator moved in the last 10 minutes; every member got a full session then"),
        ("reset", "the group was reset in the last 10 minutes: records are delivered again, or skipped"),
        ("topics_changed", "topics of the group were created, grew or were deleted in the last 10 minutes"),
    ):
        if facts.recent[cause, ""]:
            yield Finding(cause, text)


def _idle(facts: _Facts) -> Iterator[Finding]:
    idle = [one for one in facts.activity.view.members if not one.assignment and not one.revoking]
    partitions = len(facts.owners)
    if idle and partitions and len(facts.activity.view.members) > partitions:
        text = f"{len(idle)} members have no partition: the topics have {partitions}; add partitions, or stop members"
        yield Finding("idle_members", text)


def _too_slow(facts: _Facts) -> Iterator[Finding]:
    waiting = [one for one in facts.behind.values() if one.records and one.age_ms >= STUCK_MS]
    if waiting and facts.activity.view.members:
        text = f"{sum(one.records for one in waiting)} records wait and all members work: add members or partitions"
        yield Finding("too_slow", text)


def _offset(facts: _Facts, slot: Slot) -> int | None:
    views = facts.activity.view.offsets
    return next((one.offset for one in views if (one.topic, one.partition) == slot), None)


def _s(ms: int) -> str:
    return f"{ms / 1000:g} s"


_OF_LAG = (
    _absent,
    _missing_topics,
    _unreachable,
    _without_position,
    _poison,
    _holding,
    _members,
    _uneven,
)
_OF_REBALANCES = (_rebalances, _idle, _recent)
