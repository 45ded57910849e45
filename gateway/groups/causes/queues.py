"""The causes why records of a share group wait."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.groups.causes.activity import QueueActivity
from gateway.groups.causes.facts import OFTEN, Facts, Finding, missing, seconds, unreachable
from gateway.groups.model.values import Slot
from gateway.groups.share.values import ShareView

UNASKED_MS = 10_000  # without a caller that asks for records or holds some: a worker asks at once after its last record


def causes_of_waiting(facts: Facts) -> list[Finding]:
    """Returns why records of a share group wait, the causes that stop it first."""
    queue = facts.activity.queue
    if queue is None or not facts.activity.view.shares:
        return [Finding("no_callers", "no caller has acquired records yet: start a worker that names its topics")]
    return [one for rule in _RULES for one in rule(facts, queue)]


def _unreachable(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    yield from missing(facts)
    yield from unreachable(facts)


def _no_callers(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    waiting = _free(facts, queue)
    if waiting and not queue.held_ms and queue.unasked_ms >= UNASKED_MS:
        text = f"{waiting} records are available and no caller has asked for records for {seconds(queue.unasked_ms)}"
        yield Finding("no_callers", f"{text}: start a worker")


def _held(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    """No record is free, and those that callers hold have got no outcome for half the time of a lock."""
    held = sum(one.in_flight for one in facts.activity.view.shares)
    silent_ms = min(queue.held_ms, queue.unsettled_ms)
    if held and not _free(facts, queue) and silent_ms >= max(facts.settings.lock_ms // 2, UNASKED_MS):
        holders = facts.activity.view.holders
        names = ", ".join(one.member_id for one in holders[:5] if one.member_id) or "callers without a member_id"
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


def _delayed(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    delayed = sum(one.delayed for one in facts.activity.view.shares)
    in_flight = sum(one.in_flight for one in facts.activity.view.shares)
    if delayed and not in_flight and not _free(facts, queue) and queue.due_ms is not None:
        text = f"{delayed} records failed and wait for their delay, the first for {seconds(queue.due_ms)}"
        hint = "look at their errors; redelivery_delay_ms and redelivery_delay_ms_max set the delays"
        yield Finding("records_delayed", f"{text}: {hint}", until_ms=facts.activity.now_ms + queue.due_ms)


def _blocked(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    for one in queue.blocked:
        if not _free(facts, queue):
            text = (
                f"{one.records} records of partition {one.partition} of topic {one.topic} wait for earlier ones of "
                f"their keys, and order is key; the first of these is offset {one.offset}: finish it, or reject it"
            )
            yield Finding("key_blocked", text, None, one.topic, one.partition)


def _full(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    for one in facts.activity.view.shares:
        if one.end - one.start >= facts.settings.in_flight_max and not one.available and _unread(facts, one):
            text = (
                f"partition {one.partition} of topic {one.topic} has handed out in_flight_max records from offset "
                f"{one.start} on, which is not finished: finish it, or raise in_flight_max"
            )
            yield Finding("window_full", text, None, one.topic, one.partition)


def _dead_letters(facts: Facts, queue: QueueActivity) -> Iterator[Finding]:
    waiting = sum(one.dead_letters_pending for one in facts.activity.view.shares)
    if waiting and queue.copy_error:
        topic = facts.settings.dead_letter_topic
        text = f"{waiting} dead letters cannot be copied to topic {topic}: {queue.copy_error}"
        yield Finding("dead_letters_fail", text, None, topic)


def _free(facts: Facts, queue: QueueActivity) -> int:
    """Returns how many records a caller would get now, as far as their keys are known."""
    free = sum(one.available + _room(facts, one) for one in facts.activity.view.shares)
    return free - sum(one.records for one in queue.blocked)


def _room(facts: Facts, one: ShareView) -> int:
    return max(0, min(_unread(facts, one), one.start + facts.settings.in_flight_max - one.end))


def _unread(facts: Facts, one: ShareView) -> int:
    behind = facts.behind.get(Slot(one.topic, one.partition))
    return 0 if behind is None else max(0, behind.records - (one.end - one.start))


_RULES = (_unreachable, _dead_letters, _no_callers, _held, _locks, _delayed, _blocked, _full)
