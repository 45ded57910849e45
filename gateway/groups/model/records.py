"""The records of a group in the groups topic: what has changed, as rows, and the state that rows make.

A record holds the present state of one thing, so that the last one of each key is all that a new coordinator needs, and
the topic can be compacted.
Invariants: (1) what is not in a record (sessions, targets, versions) can be computed or begins with a new coordinator;
(2) fields and settings of a record that a later version has written are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct, structs

from gateway.groups.model.instances import decode_instance, encode_instance
from gateway.groups.model.state import Fields, Group, KnownTopic, Member, Offset
from gateway.groups.model.values import Client, KafkaMember, Row, Setting, Slot, TopicPattern
from gateway.groups.share.partition import SharePartition
from gateway.groups.share.state import ShareState
from gateway.groups.share.stored import decode_block, decode_head

_encode = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_Epochs = dict[str, list[tuple[int, int]]]  # partitions of each topic, each with the epoch of its assignment


class _GroupRecord(Struct, frozen=True):
    epoch: int
    resets: int
    config: dict[str, Setting]
    topics: dict[str, KnownTopic]
    active_ms: int


class _MemberRecord(Struct, frozen=True, omit_defaults=True):
    joined_epoch: int
    epoch: int
    topics: list[str]
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assigned: _Epochs
    revoking: _Epochs
    pattern: TopicPattern | None = None
    kafka: KafkaMember | None = None


def take_rows(group: Group) -> Iterator[Row]:
    """Yields the records of what has changed since the last call."""
    if group.is_changed:
        yield Row(_key("group", group.name), None if group.is_deleted else _group_record(group))
    if group.is_definition_changed:
        yield Row(_key("push", group.name), None if group.definition is None else group.definition.encode())
    for member_id in sorted(group.changed_members):
        member = group.members.get(member_id)
        yield Row(_key("member", group.name, member_id), None if member is None else _member_record(member))
    for slot in sorted(group.changed_offsets):
        offset = group.offsets.get(slot)
        yield Row(_key("offset", group.name, *slot), None if offset is None else _offset_record(offset))
    if group.is_deleted:
        group.changed_instances.update(group.instances)
        group.instances.clear()
    for instance_id in sorted(group.changed_instances):
        instance = group.instances.get(instance_id)
        value = None if instance is None else encode_instance(instance)
        yield Row(_key("instance", group.name, instance_id), value)
    if group.share is not None:
        yield from _share_rows(group.name, group.share)
    group.note_taken()


def _share_rows(name: str, share: ShareState) -> Iterator[Row]:
    for slot, blocks in share.removed:
        yield from (Row(_share_key(name, slot, block), None) for block in blocks)
    share.removed.clear()
    for slot, partition in share.partitions.items():
        if partition.has_changes:
            yield from (Row(_share_key(name, slot, block), value) for block, value in partition.take_rows())


def _share_key(name: str, slot: tuple[str, int], block: int | None) -> bytes:
    return _key("share", name, *slot) if block is None else _key("share", name, *slot, block)


def _offset_record(offset: Offset) -> bytes:
    """Returns the record of a position: short without failures and leader epoch, as nearly all are."""
    if offset.leader_epoch >= 0:
        return _encode(offset)
    position = (offset.offset, offset.metadata, offset.committed_ms)
    return _encode((*position, offset.failures, offset.failed_in, offset.retry_ms) if offset.failures else position)


def _group_record(group: Group) -> bytes:
    record = _GroupRecord(group.epoch, group.resets, group.config, group.topics, group.active_ms)
    return _with_later(record, group.later)


def replay(groups: dict[str, Group], row: Row) -> None:
    """Applies one record. Records of kinds that a later version may add are skipped."""
    kind, name, *rest = msgspec.json.decode(row.key)
    if kind == "group" and row.value is None:
        groups.pop(name, None)
        return
    if row.value is None and name not in groups:
        return
    group = groups.setdefault(name, Group(name))
    if kind == "group" and row.value is not None:
        record = msgspec.json.decode(row.value, type=_GroupRecord)
        group.epoch, group.resets, group.topics, group.active_ms = (
            record.epoch,
            record.resets,
            record.topics,
            record.active_ms,
        )
        group.set_config(record.config)
        group.later = _later(row.value, _GroupRecord)
    elif kind == "push":
        group.definition = None if row.value is None else row.value.decode()
    elif kind == "member":
        _replay_member(group, rest[0], row.value)
    elif kind == "offset":
        slot = Slot(*rest)
        if row.value is None:
            group.offsets.pop(slot, None)
        else:
            group.offsets[slot] = msgspec.json.decode(row.value, type=Offset)
    elif kind == "instance":
        group.instances.pop(rest[0], None)
        if row.value is not None:
            group.instances[rest[0]] = decode_instance(row.value)
    elif kind == "share":
        _replay_share(group, Slot(rest[0], rest[1]), rest[2] if len(rest) > 2 else None, row.value)


def _replay_share(group: Group, slot: Slot, block: int | None, value: bytes | None) -> None:
    share = group.share = group.share or ShareState()
    if block is None and value is None:
        share.partitions.pop(slot, None)
    elif block is None and value is not None:
        head = decode_head(value)
        share.partitions.setdefault(slot, SharePartition.of(head)).set_head(head)
    elif slot in share.partitions or value is not None:
        partition = share.partitions.setdefault(slot, SharePartition("", 0))
        assert block is not None
        partition.replay(block, None if value is None else decode_block(value))


def _replay_member(group: Group, member_id: str, value: bytes | None) -> None:
    before = group.members.pop(member_id, None)
    for slot in () if before is None else (*before.assigned, *before.revoking):
        if group.owners.get(slot) == member_id:
            del group.owners[slot]
    if value is None:
        return
    record = msgspec.json.decode(value, type=_MemberRecord)
    member = Member(
        member_id,
        record.joined_epoch,
        record.epoch,
        frozenset(record.topics),
        record.client,
        record.session_timeout_ms,
        record.rebalance_timeout_ms,
        _flatten(record.assigned),
        _flatten(record.revoking),
        pattern=record.pattern,
        kafka=record.kafka,
        later=_later(value, _MemberRecord),
    )
    member.revoked = dict.fromkeys(member.revoking, member.epoch)
    group.members[member_id] = member
    group.owners |= dict.fromkeys((*member.assigned, *member.revoking), member_id)


def _member_record(member: Member) -> bytes:
    record = _MemberRecord(
        member.joined_epoch,
        member.epoch,
        sorted(member.topics),
        member.client,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        _nest(member.assigned.items()),
        _nest(member.revoking.items()),
        member.pattern,
        member.kafka,
    )
    return _with_later(record, member.later)


def _later(value: bytes, kind: type[Struct]) -> Fields:
    """Returns the fields of a record that its kind does not have: they are of a later version."""
    return {name: raw for name, raw in _decode_fields(value).items() if name not in kind.__struct_fields__}


def _with_later(record: Struct, later: Fields) -> bytes:
    return _encode(structs.asdict(record) | later) if later else _encode(record)


def _key(*parts: object) -> bytes:
    return _encode(parts)


def _nest(epochs: Iterable[tuple[Slot, int]]) -> _Epochs:
    nested: _Epochs = {}
    for slot, epoch in sorted(epochs):
        nested.setdefault(slot.topic, []).append((slot.partition, epoch))
    return nested


def _flatten(nested: _Epochs) -> dict[Slot, int]:
    return {Slot(topic, partition): epoch for topic, pairs in nested.items() for partition, epoch in pairs}
