"""The causes of rebalances of a consumer group, and what happened lately in a group of any kind."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.groups.diagnosis.facts import OFTEN, Facts, Finding


def causes_of_rebalances(facts: Facts) -> list[Finding]:
    """Returns why a consumer group rebalances."""
    return [*_rebalances(facts), *_idle(facts), *recent(facts)]


def _rebalances(facts: Facts) -> Iterator[Finding]:
    members = sorted({member_id for _, member_id in facts.recent if member_id})
    for member_id in members:
        expired = facts.recent["session_expired", member_id]
        removed = facts.recent["rebalance_timed_out", member_id]
        again = sum(facts.recent[cause, member_id] for cause in ("joined", "joined_again")) - expired - removed
        if facts.recent["shared_member_id", member_id] >= OFTEN:
            text = f"several clients poll as member {member_id}, so each of them reads the same records"
            yield Finding("shared_member_id", f"{text}: give each client its own member_id", member_id)
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
    present = {member.member_id for member in facts.activity.members}
    gone = [member_id for member_id in strangers if member_id not in present]
    if len(gone) > OFTEN:
        text = (
            f"{len(gone)} members joined and went within 10 minutes: give each worker a name that survives its restart"
        )
        yield Finding("new_names", text)


def recent(facts: Facts) -> Iterator[Finding]:
    for cause, text in (
        ("coordinator_started", "the coordinator moved in the last 10 minutes; every member got a full session then"),
        ("reset", "the group was reset in the last 10 minutes: records are delivered again, or skipped"),
        ("topics_changed", "topics of the group were created, grew or were deleted in the last 10 minutes"),
    ):
        if facts.recent[cause, ""]:
            yield Finding(cause, text)
    yield from _dead_letters(facts)


def _dead_letters(facts: Facts) -> Iterator[Finding]:
    count = sum(number for (cause, _), number in facts.recent.items() if cause == "dead_lettered")
    if count:
        topic = facts.settings.dead_letter_topic
        text = f"{count} records became dead letters lately, the last ones in the last 10 minutes"
        hint = f"look at their errors in topic {topic}, then run penstock group replay-dead-letters"
        yield Finding("dead_letters", f"{text}: {hint}", topic=topic)


def _idle(facts: Facts) -> Iterator[Finding]:
    idle = [member for member in facts.activity.view.members if not member.assignment and not member.revoking]
    partitions = len(facts.owners)
    if idle and partitions and len(facts.activity.view.members) > partitions:
        text = f"{len(idle)} members have no partition: the topics have {partitions}; add partitions, or stop members"
        yield Finding("idle_members", text)
