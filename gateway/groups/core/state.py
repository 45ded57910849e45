"""The state of one group: members, what each reads, committed positions; and its records in the groups topic.

Decides nothing: membership.py, positions.py and coordinator.py do. A record holds the present state of one thing, so
that the last one of each key is all that a new coordinator needs, and the topic can be compacted.
Invariants: (1) `owners` names for each partition the one member that has it in `assigned` or `revoking`; (2) what is
not in a record (sessions, targets, versions) can be computed or begins with a new coordinator; (3) fields and settings
of a record that a later version has written are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct, structs

from gateway.groups.core.history import History
from gateway.groups.core.settings import GroupSettings, stored_settings
from gateway.groups.core.values import Client, Row, Setting, Slot, TopicSize
from gateway.groups.share.partition import SharePartition
from gateway.groups.share.state import ShareState
from gateway.groups.share.stored import decode_block, decode_head

_encode = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_Fields = dict[str, msgspec.Raw]  # of a record, by name
_Epochs = dict[str, list[tuple[int, int]]]  # partitions of each topic, each with the epoch of its assignment


class KnownTopic(Struct, frozen=True, array_like=True):
    """A topic that the group reads. Partitions from `first_partitions` on were added later: they have no past."""

    topic_id: str
    first_partitions: int


class Offset(Struct, frozen=True, array_like=True):
    """A committed position."""

    offset: int
    metadata: str
    committed_ms: int


class _GroupRecord(Struct, frozen=True):
    epoch: int
    resets: int
    config: dict[str, Setting]
    topics: dict[str, KnownTopic]
    active_ms: int


class _MemberRecord(Struct, frozen=True):
    joined_epoch: int
    epoch: int
    topics: list[str]
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assigned: _Epochs
    revoking: _Epochs


@dataclass(slots=True)
class Member:
    """A member. `assigned` and `revoking` have the epoch at which it got each partition.

    It may send any epoch from `joined_epoch` to `epoch`. `waiting` counts its open polls: they keep its session.
    `revoked` has the epoch at which each of `revoking` was revoked, `delivery` counts deliveries, `called_ms` and
    `moved_ms` are the last call and commit; they begin with a coordinator. `later` has the fields of its record that a
    later version has written.
    """

    member_id: str
    joined_epoch: int
    epoch: int
    topics: frozenset[str]
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assigned: dict[Slot, int] = field(default_factory=dict)
    revoking: dict[Slot, int] = field(default_factory=dict)
    session_ends_ms: int = 0
    rebalance_ends_ms: int | None = None
    waiting: int = 0
    version: int = 0
    called_ms: int = 0
    moved_ms: int = 0
    revoked: dict[Slot, int] = field(default_factory=dict)
    delivery: int = 0
    later: _Fields = field(default_factory=dict)

    def epoch_of(self, slot: Slot) -> int | None:
        """Returns the epoch at which the member got a partition; None if it does not own it."""
        found = self.assigned.get(slot)
        return self.revoking.get(slot) if found is None else found

    def has_epoch(self, epoch: int) -> bool:
        """Returns whether an epoch is one of the member's present membership."""
        return self.joined_epoch <= epoch <= self.epoch


@dataclass(slots=True)
class Group:
    """A group. The `changed_*` fields name the records that are to be written."""

    name: str
    epoch: int = 0
    resets: int = 0
    config: dict[str, Setting] = field(default_factory=dict)
    topics: dict[str, KnownTopic] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    offsets: dict[Slot, Offset] = field(default_factory=dict)
    active_ms: int = 0
    definition: str | None = None  # of the subscription that the group belongs to
    owners: dict[Slot, str] = field(default_factory=dict)
    target: dict[Slot, str] = field(default_factory=dict)
    sizes: dict[str, TopicSize | None] = field(default_factory=dict)  # of subscribed topics, as of the last rebalance
    settings: GroupSettings = field(default_factory=GroupSettings)
    later: _Fields = field(default_factory=dict)  # fields of its record that a later version has written
    is_deleted: bool = False
    is_changed: bool = False
    is_definition_changed: bool = False
    history: History = field(default_factory=History)
    changed_members: set[str] = field(default_factory=set)
    changed_offsets: set[Slot] = field(default_factory=set)
    share: ShareState | None = None  # of a share group, from its first call on

    @property
    def state(self) -> str:
        if not self.members:
            return "empty"
        return "stable" if self.owners == self.target else "reconciling"

    def set_config(self, config: dict[str, Setting]) -> None:
        """Replaces the settings."""
        self.settings = stored_settings(config)
        self.config = config

    def last_active_ms(self) -> int:
        """Returns the wall time of the last member or commit."""
        shared = () if self.share is None else self.share.partitions.values()
        times = [*(one.committed_ms for one in self.offsets.values()), *(one.active_ms for one in shared)]
        return max([self.active_ms, *times])

    def take_rows(self) -> Iterator[Row]:
        """Yields the records of what has changed since the last call."""
        if self.is_changed:
            yield Row(_key("group", self.name), None if self.is_deleted else self._record())
        if self.is_definition_changed:
            yield Row(_key("push", self.name), None if self.definition is None else self.definition.encode())
        for member_id in sorted(self.changed_members):
            member = self.members.get(member_id)
            yield Row(_key("member", self.name, member_id), None if member is None else _member_record(member))
        for slot in sorted(self.changed_offsets):
            offset = self.offsets.get(slot)
            yield Row(_key("offset", self.name, *slot), None if offset is None else _encode(offset))
        if self.share is not None:
            yield from self._share_rows(self.share)
        self.is_changed = self.is_definition_changed = False
        self.changed_members.clear()
        self.changed_offsets.clear()

    def _share_rows(self, share: ShareState) -> Iterator[Row]:
        for slot, blocks in share.removed:
            yield from (Row(self._share_key(slot, block), None) for block in blocks)
        share.removed.clear()
        for slot, partition in share.partitions.items():
            if partition.has_changes:
                yield from (Row(self._share_key(slot, block), value) for block, value in partition.take_rows())

    def _share_key(self, slot: tuple[str, int], block: int | None) -> bytes:
        return _key("share", self.name, *slot) if block is None else _key("share", self.name, *slot, block)

    def _record(self) -> bytes:
        record = _GroupRecord(self.epoch, self.resets, self.config, self.topics, self.active_ms)
        return _with_later(record, self.later)


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
        found = msgspec.json.decode(row.value, type=_GroupRecord)
        group.epoch, group.resets, group.topics, group.active_ms = (
            found.epoch,
            found.resets,
            found.topics,
            found.active_ms,
        )
        group.set_config(found.config)
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
    found = msgspec.json.decode(value, type=_MemberRecord)
    member = Member(
        member_id,
        found.joined_epoch,
        found.epoch,
        frozenset(found.topics),
        found.client,
        found.session_timeout_ms,
        found.rebalance_timeout_ms,
        _flat(found.assigned),
        _flat(found.revoking),
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
        _nested(member.assigned.items()),
        _nested(member.revoking.items()),
    )
    return _with_later(record, member.later)


def _later(value: bytes, kind: type[Struct]) -> _Fields:
    """Returns the fields of a record that its kind does not have: they are of a later version."""
    return {name: raw for name, raw in _decode_fields(value).items() if name not in kind.__struct_fields__}


def _with_later(record: Struct, later: _Fields) -> bytes:
    return _encode(structs.asdict(record) | later) if later else _encode(record)


def _key(*parts: object) -> bytes:
    return _encode(parts)


def _nested(epochs: Iterable[tuple[Slot, int]]) -> _Epochs:
    nested: _Epochs = {}
    for slot, epoch in sorted(epochs):
        nested.setdefault(slot.topic, []).append((slot.partition, epoch))
    return nested


def _flat(nested: _Epochs) -> dict[Slot, int]:
    return {Slot(topic, partition): epoch for topic, pairs in nested.items() for partition, epoch in pairs}
