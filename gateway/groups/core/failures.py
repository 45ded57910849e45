"""Failed records of a consumer group: those that a member reports with the token of their delivery.

A partition waits for its failed record: no member reads it until the delay of the failure is over. The delivery
commits only what is before the record, and it is delivered again with all that is behind it. Once it has failed
`deliveries_max` times, the process that took the poll copies it to the dead-letter topic, and the position moves past.
Invariants: (1) the whole state is one count and one time for each partition, of the record at its position; (2) a
position moves past a failed record only after its copy is committed, or by a later token, commit or reset of the
client; (3) a report that is repeated with its token counts once, also if it comes after a report of a later delivery;
(4) no delay is longer than the group's longest, whatever the clocks of two coordinators say.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from engine.errors import Invalid
from gateway.groups.core import positions
from gateway.groups.model.state import Delayed, Group, Member
from gateway.groups.model.values import DelayedPartition, Failure, Now, PollCall, Position, Token
from gateway.groups.share.values import DeadLetter

REASON = "deliveries_max"


def trim(token: Token | None, failed: Iterable[Failure]) -> Token:
    """Returns the token of a delivery up to the first failed record of each partition. Raises Invalid.

    The process that took the poll does this, so that a coordinator of an earlier release, which does not look at
    `failed`, commits no failed record either.
    """
    if token is None:
        raise Invalid("failed: records are reported with the token of the delivery that has them")
    by_slot = {position.slot: position for position in token.positions}
    for failure in failed:
        before = by_slot.get(failure.slot)
        if before is None or failure.offset >= before.offset:
            raise Invalid(
                f"failed: offset {failure.offset} of partition {failure.partition} of topic {failure.topic!r} is not "
                "in this delivery, or not before the other record of its partition in the list"
            )
        by_slot[failure.slot] = structs.replace(before, offset=failure.offset)
    return structs.replace(token, positions=tuple(by_slot.values()))


def take(group: Group, member: Member, token: Token, call: PollCall, now: Now) -> None:
    """Takes what a poll says of failed records, after the commit of its token. Raises Invalid."""
    if not call.failed:
        return
    if not group.settings.auto_commit:
        raise Invalid("failed: the group's auto_commit is false, so the token does not commit what is before them")
    _count(group, member, token, call.failed, now)
    _pass_copied(group, member, call.copied, now)
    if call.copy_error:
        group.history.note("dead_letters_failed", now, member.member_id, call.copy_error)


def dead_letters(group: Group, failed: Iterable[Failure]) -> tuple[DeadLetter, ...]:
    """Returns those of the failed records that have failed too often. Without a dead-letter topic there are none."""
    topic, letters = group.settings.dead_letter_topic, []
    for failure in failed if topic is not None else ():
        committed, read_topic = group.offsets.get(failure.slot), group.topics.get(failure.topic)
        if committed is None or read_topic is None or committed.offset != failure.offset:
            continue
        if committed.failures >= group.settings.deliveries_max:
            record = (failure.topic, read_topic.topic_id, failure.partition, failure.offset, failure.offset)
            letters.append(DeadLetter(group.name, str(topic), *record, committed.failures, REASON, failure.error))
    return tuple(letters)


def begin(group: Group, now: Now) -> None:
    """Goes on with the delays that an earlier coordinator has stored."""
    for slot, committed in group.offsets.items():
        if committed.failures:
            left_ms = max(0, committed.retry_ms - now.wall_ms)
            group.delayed[slot] = Delayed(committed.offset, now.steady_ms + left_ms, "")
    shorten(group, now)


def shorten(group: Group, now: Now) -> None:
    """Ends delays that are longer than the group's longest by now."""
    last_ms = now.steady_ms + group.settings.backoff().longest_ms
    for slot, record in group.delayed.items():
        group.delayed[slot] = record._replace(until_ms=min(record.until_ms, last_ms))


def delayed_partitions(group: Group, member: Member, now: Now) -> tuple[DelayedPartition, ...]:
    """Returns the partitions of a member that wait for their failed record, and for how long."""
    return tuple(
        DelayedPartition(*slot, record.until_ms - now.steady_ms)
        for slot, record in group.failed_records()
        if record.until_ms > now.steady_ms and slot in member.assigned
    )


def _count(group: Group, member: Member, token: Token, failed: Iterable[Failure], now: Now) -> None:
    """Counts a failure of each record that is at its partition's position, if the member owns the partition."""
    report = (token.member_epoch, token.delivery)
    if 0 < token.delivery < member.delivery:
        return  # a repeat: the member has got a later delivery by a poll that had this token
    for failure in failed:
        committed, epoch = group.offsets.get(failure.slot), member.epoch_of(failure.slot)
        if committed is None or committed.offset != failure.offset or committed.failed_in == report:
            continue  # it was reported before, or has been finished since
        if epoch is None or token.member_epoch < epoch:
            continue
        failures, topic_id = committed.failures + 1, group.topics[failure.topic].topic_id
        delay_ms = group.settings.backoff().after(failures, f"{topic_id} {failure.partition} {failure.offset}")
        group.offsets[failure.slot] = structs.replace(
            committed, failures=failures, failed_in=report, retry_ms=now.wall_ms + delay_ms
        )
        group.changed_offsets.add(failure.slot)
        group.delayed[failure.slot] = Delayed(failure.offset, now.steady_ms + delay_ms, failure.error)
        group.history.note("record_failed", now, member.member_id, failure.error)
        group.history.note_begun([(failure.slot, failure.offset)], now)


def _pass_copied(group: Group, member: Member, copied: Iterable[Position], now: Now) -> None:
    """Moves positions past dead letters whose copies are committed."""
    for position in copied:
        committed = group.offsets.get(position.slot)
        is_at_it = committed is not None and committed.failures > 0 and committed.offset == position.offset - 1
        if is_at_it and member.epoch_of(position.slot) is not None:
            positions.store(group, [position], now)
            group.dead_letters += 1
            group.history.note("dead_lettered", now, member.member_id, group.settings.dead_letter_topic or "")
