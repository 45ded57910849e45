"""The activity of a group, from which findings.py explains it."""

from __future__ import annotations

from msgspec import Struct

from gateway.groups.model.history import Event
from gateway.groups.model.state import Group, Member
from gateway.groups.model.values import GroupView, Now, TopicSource
from gateway.groups.share.state import ShareState


class MemberActivity(Struct, frozen=True, array_like=True):
    """A member's last call, last commit and revocation, as times ago. `revoking_ms` is 0 if nothing is revoked."""

    member_id: str
    is_polling: bool
    silent_ms: int
    unmoved_ms: int
    revoking_ms: int
    session_timeout_ms: int


class BegunView(Struct, frozen=True, array_like=True):
    """How often reading of a partition began at its committed position, and when the last three of these were."""

    topic: str
    partition: int
    offset: int
    count: int
    times_ms: tuple[int, ...]


class BlockedView(Struct, frozen=True, array_like=True):
    """Records of a partition that wait for an earlier record of their key: their number, and the first such record."""

    topic: str
    partition: int
    records: int
    offset: int


class FailedView(Struct, frozen=True, array_like=True):
    """A record for which its partition waits: how often it failed, with which error, and when it is delivered again."""

    topic: str
    partition: int
    offset: int
    failures: int
    error: str
    left_ms: int


class QueueActivity(Struct, frozen=True, array_like=True):
    """The activity of a share group, as times ago. `held_ms` is of the oldest lock that holds records; 0: none does.

    `due_ms`: after which time the next delayed record is available. `copy_error`: why dead letters are not copied.
    """

    unasked_ms: int
    unsettled_ms: int
    held_ms: int
    due_ms: int | None
    blocked: tuple[BlockedView, ...] = ()
    copy_error: str = ""


class Activity(Struct, frozen=True, array_like=True):
    """A group with its history. `missing` are topics that it reads and that do not exist. `queue` is of a share group.

    `failed` are the records for which partitions of a consumer group wait.
    """

    view: GroupView
    now_ms: int
    events: tuple[Event, ...]
    members: tuple[MemberActivity, ...]
    begun: tuple[BegunView, ...]
    missing: tuple[str, ...]
    queue: QueueActivity | None = None
    failed: tuple[FailedView, ...] = ()


def activity(group: Group, view: GroupView, now: Now, source: TopicSource) -> Activity:
    """Describes what happens in a group."""
    subscribed = {topic for member in group.members.values() for topic in member.topics}
    read = {position.topic for position in view.offsets}
    return Activity(
        view,
        now.wall_ms,
        tuple(group.history.events),
        tuple(_member_activity(member, now) for _, member in sorted(group.members.items())),
        tuple(
            BegunView(slot.topic, slot.partition, begun.offset, begun.begins, begun.times_ms)
            for slot, begun in sorted(group.history.begun.items())
        ),
        tuple(sorted(topic for topic in subscribed | read if source.find(topic) is None)),
        None if group.share is None else _queue_activity(group.share, now),
        tuple(
            FailedView(
                *slot,
                record.offset,
                group.offsets[slot].failures,
                record.error,
                max(0, record.until_ms - now.steady_ms),
            )
            for slot, record in sorted(group.failed_records())
        ),
    )


def _queue_activity(share: ShareState, now: Now) -> QueueActivity:
    blocked = []
    for (topic, number), partition in sorted(share.partitions.items()):
        count, first = partition.blocked_records(now.wall_ms)
        if count:
            blocked.append(BlockedView(topic, number, count, first))
    since_ms = share.held_since_ms()
    delays = [due for partition in share.partitions.values() if (due := partition.due_ms(now.wall_ms)) is not None]
    return QueueActivity(
        now.steady_ms - share.asked_ms,
        now.steady_ms - share.settled_ms,
        0 if since_ms is None else max(1, now.steady_ms - since_ms),
        min(delays, default=None),
        tuple(blocked),
        share.copy_error,
    )


def _member_activity(member: Member, now: Now) -> MemberActivity:
    revoking_ms = 0
    if member.rebalance_ends_ms is not None:
        revoking_ms = max(1, now.steady_ms - member.rebalance_ends_ms + member.rebalance_timeout_ms)
    return MemberActivity(
        member.member_id,
        member.waiting > 0,
        0 if member.waiting else now.steady_ms - member.called_ms,
        now.steady_ms - member.moved_ms,
        revoking_ms,
        member.session_timeout_ms,
    )
