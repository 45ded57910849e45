"""Committed positions: deliveries by token, commits by position, resets.

Invariants: (1) a position never goes back but by a reset, and no token from before a reset commits over it; (2) a
member commits a partition only while it owns it, with an epoch since it got it; (3) a call commits all of its positions
or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.groups.core.membership import SHARED_ID, check_epoch
from gateway.groups.model.errors import CoordinatorMoved, GroupsFull, InvalidToken, MemberFenced, StaleToken
from gateway.groups.model.settings import CoordinatorLimits
from gateway.groups.model.state import Group, Member, Offset
from gateway.groups.model.values import (
    START_EARLIEST,
    START_POLICY,
    ForgetCall,
    Now,
    PollCall,
    Position,
    Slot,
    Token,
    TopicSource,
)


def commit_delivery(group: Group, member: Member, token: Token, now: Now) -> dict[Slot, int]:
    """Commits the delivery of a token, if the group commits by tokens. Returns its positions.

    Raises InvalidToken, StaleToken.
    """
    if token.member_id != member.member_id:
        text = f"the token is of member {token.member_id!r}, the poll of {member.member_id!r}"
        raise InvalidToken(text, hint="send each member's token with its own polls")
    if token.resets != group.resets:
        raise stale(f"group {group.name!r} was reset after this delivery")
    if not member.has_epoch(token.member_epoch):
        raise stale(f"member {member.member_id!r} joined again after this delivery", SHARED_ID)
    delivered: list[Position] = []
    for position in token.positions:
        if not _is_of_topic(group, position) or _is_committed(group, position):
            continue
        epoch = member.epoch_of(position.slot)
        if epoch is None or token.member_epoch < epoch:
            if not group.settings.auto_commit:
                continue  # the token commits nothing, and another member reads the partition now
            raise stale(f"partition {position.partition} of topic {position.topic!r} was given to another member")
        delivered.append(position)
    if group.settings.auto_commit:
        store(group, delivered, now)
        member.moved_ms = now.steady_ms if delivered else member.moved_ms
    return {position.slot: position.offset for position in delivered}


def given_up_slots(member: Member, call: PollCall) -> list[Slot]:
    """Returns the revoked partitions that a member gives up with a poll: it has finished their records.

    A late repeat of an earlier poll gives up nothing: the member may work on a later delivery. Only the count of
    deliveries distinguishes them. A poll that begins without a token has none, and may be late too: it gives up only
    what was revoked before an answer that the member has confirmed by a commit.
    """
    if call.token is None and not call.delivery:
        return [slot for slot, epoch in member.revoked.items() if epoch <= member.confirmed_epoch]
    return [] if 0 < last_delivery(call) < member.delivery else list(member.revoking)


def last_delivery(call: PollCall) -> int:
    """Returns the delivery that a poll follows; 0: none, or it was not counted."""
    return call.delivery or (0 if call.token is None else call.token.delivery)


def stale(reason: str, *hints: str) -> StaleToken:
    """Returns the error of a token that commits nothing any more."""
    hint = "poll again without a token; records that were not committed are delivered again"
    return StaleToken(reason, hint="; ".join((hint, *hints)), recover={"token": None})


def note_shared_id(group: Group, member: Member, call: PollCall, now: Now) -> None:
    """Notes a poll that follows neither the latest delivery nor the one that the poll before it followed.

    One client follows the latest, or repeats its poll. Several clients with one member_id get every record several
    times, and none of them is fenced: each delivery is of the present membership.
    """
    followed = last_delivery(call)
    if followed not in (0, member.delivery, member.followed):
        group.history.note("shared_member_id", now, member.member_id)
    member.followed = followed


def check_member_commit(group: Group, member: Member, epoch: int, positions: Iterable[Position]) -> None:
    """Checks that a member may commit these positions. Raises MemberFenced."""
    check_epoch(group, member, epoch)
    for position in positions:
        owned = member.epoch_of(position.slot)
        if owned is None or epoch < owned or not _is_of_topic(group, position):
            raise MemberFenced(
                f"member {member.member_id!r} does not own partition {position.partition} of topic "
                f"{position.topic!r} in epoch {epoch}",
                hint="send a heartbeat and read what it assigns",
                recover={"member_epoch": member.epoch},
            )


def commit(group: Group, positions: Iterable[Position], now: Now) -> None:
    """Commits positions; those that are not higher than the committed ones change nothing."""
    present = [position for position in positions if _is_of_topic(group, position)]
    store(group, [position for position in present if not _is_committed(group, position)], now)


def store(group: Group, positions: Iterable[Position], now: Now) -> None:
    """Sets positions, in any direction."""
    for position in positions:
        group.offsets[position.slot] = Offset(
            position.offset, position.metadata, now.wall_ms, leader_epoch=position.leader_epoch
        )
        group.changed_offsets.add(position.slot)


def forget(group: Group, call: ForgetCall) -> None:
    """Deletes the positions of a topic, or of one of its partitions."""
    for slot in [slot for slot in group.offsets if slot.topic == call.topic]:
        if call.partition in (None, slot.partition):
            del group.offsets[slot]
            group.changed_offsets.add(slot)


def check_room(group: Group, positions: Iterable[Position], limits: CoordinatorLimits, source: TopicSource) -> None:
    """Checks that a group can have these positions too, without those of deleted topics. Raises GroupsFull."""
    added = sum(position.slot not in group.offsets for position in positions)
    if len(group.offsets) + added <= limits.positions_max:
        return
    gone = [slot for slot in group.offsets if source.find(slot.topic) is None]
    if len(group.offsets) + added - len(gone) > limits.positions_max:
        text = f"group {group.name!r} would have more than {limits.positions_max} positions"
        raise GroupsFull(text, limit=limits.positions_max)
    for slot in gone:
        del group.offsets[slot]
        group.changed_offsets.add(slot)


def check_topics(positions: Iterable[Position], source: TopicSource) -> None:
    """Checks that the topics are those that the sender of a call knows. Raises CoordinatorMoved: it calls again.

    Some processes learn of a new topic later than others; until then its positions could not be kept.
    """
    for position in positions:
        size = source.find(position.topic)
        if size is None or size.topic_id != position.topic_id:
            raise CoordinatorMoved(
                f"the coordinator does not know the topic {position.topic!r} of that id (any more, or yet)"
            )


def assignment(group: Group, member: Member, read: Mapping[Slot, int]) -> tuple[Position, ...]:
    """Returns the partitions of a member with the positions to read from; `read` has those of its delivery."""
    positions = []
    for slot in sorted(member.assigned):  # in each poll: a call for each partition would cost as much as the rest
        topic, committed = group.topics[slot.topic], group.offsets.get(slot)
        offset = read.get(slot, -1)
        if committed is not None:
            offset = max(committed.offset, offset)
        elif offset < 0:
            offset = START_POLICY if slot.partition < topic.first_partitions else START_EARLIEST
        positions.append(Position(slot.topic, topic.topic_id, slot.partition, offset))
    return tuple(positions)


def _is_of_topic(group: Group, position: Position) -> bool:
    topic = group.topics.get(position.topic)
    return topic is not None and topic.topic_id == position.topic_id


def _is_committed(group: Group, position: Position) -> bool:
    committed = group.offsets.get(position.slot)
    return committed is not None and committed.offset >= position.offset
