"""The causes why records of a share group wait."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.groups.diagnosis.activity import QueueActivity
from gateway.groups.diagnosis.facts import OFTEN, Facts, Finding, missing, seconds, unreachable
from gateway.groups.model.values import Slot
from gateway.groups.share.values import ShareView

UNASKED_MS = 10_000  # without a caller that asks for records or holds some: a worker asks at once after its last record


def causes_of_waiting(facts: Facts) -> list[Finding]:
    """Returns why records of a share group wait, the causes that stop it first."""
    queue = facts.activity.queue
    if queue is None or not facts.activity.view.shares:
        return [Finding("no_callers", "no caller has acquired records yet: start a worker that names its topics")]
    return [finding for rule in _RULES for finding in rule(facts, queue)]


def _unreachable(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    yield from missing(facts)
    yield from unreachable(facts)


def _no_callers(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    waiting = _free(facts, queue)
    if waiting and not queue.held_ms and queue.unasked_ms >= UNASKED_MS:
        text = f"{waiting} records are available and no caller has asked for records for {seconds(queue.unasked_ms)}"
        yield Finding("no_callers", f"{text}: start a worker")


def _held_records(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    """No record is free, and those that callers hold have got no outcome for half the time of a lock."""
    held = sum(share.in_flight for share in facts.activity.view.shares)
    silent_ms = min(queue.held_ms, queue.unsettled_ms)
    if held and not _free(facts, queue) and silent_ms >= max(facts.settings.lock_ms // 2, UNASKED_MS):
        holders = facts.activity.view.holders
        members = [holder.member_id for holder in holders[:5] if holder.member_id]
        names = ", ".join(members) or "callers without a member_id"
        text = f"{held} records are locked by {names}, none was acknowledged for {seconds(silent_ms)}, and none is free"
        hint = "their work does not end, or they do not acknowledge; the records are delivered again when the locks end"
        yield Finding("unacknowledged", f"{text}: {hint}", holders[0].member_id or None if len(holders) == 1 else None)


def _locks(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    for (cause, member_id), count in sorted(facts.recent.items()):
        if cause == "lock_ended" and count >= OFTEN:
            name = f"caller {member_id}" if member_id else "callers without a member_id"
            text = f"{count} locks of {name} ended in 10 minutes before their records were acknowledged"
            hint = "its process dies, or its work is longer than lock_ms: extend the locks, or raise it"
            yield Finding("locks_end", f"{text}: {hint}", member_id or None)


def _delayed_records(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    delayed = sum(share.delayed for share in facts.activity.view.shares)
    in_flight = sum(share.in_flight for share in facts.activity.view.shares)
    if delayed and not in_flight and not _free(facts, queue) and queue.due_ms is not None:
        text = f"{delayed} records failed and wait for their delay, the first for {seconds(queue.due_ms)}"
        hint = "look at their errors; redelivery_delay_ms and redelivery_delay_ms_max set the delays"
        yield Finding("records_delayed", f"{text}: {hint}", until_ms=facts.activity.now_ms + queue.due_ms)


def _blocked_keys(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    for blocked in queue.blocked:
        if not _free(facts, queue):
            text = (
                f"{blocked.records} records of partition {blocked.partition} of topic {blocked.topic} wait for earlier "
                f"ones of their keys, and order is key; the first of these is offset {blocked.offset}: finish it, or "
                "reject it"
            )
            yield Finding("key_blocked", text, None, blocked.topic, blocked.partition)


def _full(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    for share in facts.activity.view.shares:
        if share.end - share.start >= facts.settings.in_flight_max and not share.available and _unread(facts, share):
            text = (
                f"partition {share.partition} of topic {share.topic} has handed out in_flight_max records from offset "
                f"{share.start} on, which is not finished: finish it, or raise in_flight_max"
            )
            yield Finding("window_full", text, None, share.topic, share.partition)


def _dead_letters(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    waiting = sum(share.dead_letters_pending for share in facts.activity.view.shares)
    if waiting and queue.copy_error:
        topic = facts.settings.dead_letter_topic
        text = f"{waiting} dead letters cannot be copied to topic {topic}: {queue.copy_error}"
        yield Finding("dead_letters_fail", text, None, topic)


def _free(facts: Facts, queue: QueueActivity) -> int:
    """Returns how many records a caller would get now, as far as their keys are known."""
    free = sum(share.available + _room(facts, share) for share in facts.activity.view.shares)
    return free - sum(blocked.records for blocked in queue.blocked)


def _room(facts: Facts, share: ShareView) -> int:
    return max(0, min(_unread(facts, share), share.start + facts.settings.in_flight_max - share.end))


def _unread(facts: Facts, share: ShareView) -> int:
    behind = facts.behind.get(Slot(share.topic, share.partition))
    return 0 if behind is None else max(0, behind.records - (share.end - share.start))


_RULES = (_unreachable, _dead_letters, _no_callers, _held_records, _locks, _delayed_records, _blocked_keys, _full)
