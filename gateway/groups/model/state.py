"""The state of one group: members, what each reads, committed positions.

Decides nothing: gateway/groups/core does.
Invariant: `owners` names for each partition the one member that has it in `assigned` or `revoking`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec import Struct

from gateway.groups.model.classic import CLASSIC, ClassicState, Phase
from gateway.groups.model.history import History
from gateway.groups.model.instances import Instance
from gateway.groups.model.settings import GroupSettings, stored_settings
from gateway.groups.model.share_members import ShareMember
from gateway.groups.model.values import Client, KafkaMember, PartitionRacks, Setting, Slot, TopicPattern, TopicSize
from gateway.groups.share.state import ShareState

Fields = dict[str, msgspec.Raw]  # of a record, by name
CLASSIC_STATES = {
    Phase.EMPTY: "empty",
    Phase.PREPARING: "reconciling",
    Phase.COMPLETING: "reconciling",
    Phase.STABLE: "stable",
}
TopicRacks = dict[str, tuple[PartitionRacks, ...]]


class KnownTopic(Struct, frozen=True, array_like=True):
    """A topic that the group reads. Partitions from `first_partitions` on were added later: they have no past."""

    topic_id: str
    first_partitions: int


class Offset(Struct, frozen=True, array_like=True):
    """A committed position. `failures` counts those of the record there, the last one by epoch and delivery.

    `retry_ms` is the wall time from which a record that failed is delivered again. `leader_epoch` is that of the record
    before, if a client of Kafka's protocol has said it.
    """

    offset: int
    metadata: str
    committed_ms: int
    failures: int = 0
    failed_in: tuple[int, int] = (0, 0)
    retry_ms: int = 0
    leader_epoch: int = -1


class Delayed(NamedTuple):
    """A partition that waits for its failed record, until a steady time. `error` is the last report's."""

    offset: int
    until_ms: int
    error: str


@dataclass(slots=True)
class Member:
    """A member. `assigned` and `revoking` have the epoch at which it got each partition.

    It may send any epoch from `joined_epoch` to `epoch`. `waiting` counts its open polls: they keep its session.
    `revoked` has the epoch at which each of `revoking` was revoked, `confirmed_epoch` is that of its last commit by
    position, `delivery` counts deliveries, `followed` is the one that its last poll followed, `called_ms` and
    `moved_ms` are the last call and commit; they begin with a coordinator. With a `pattern`, `topics` are the named and
    the matching ones, as of version `matched` of its matches; names from
    `arrived` on came after it. `later` has the fields of its record that a
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
    followed: int = 0
    confirmed_epoch: int = 0
    pattern: TopicPattern | None = None
    matched: int = 0
    arrived: int = 0
    kafka: KafkaMember | None = None
    sent_version: int = -1  # of the assignment that was sent last to a member over Kafka's protocol
    later: Fields = field(default_factory=dict)

    def epoch_of(self, slot: Slot) -> int | None:
        """Returns the epoch at which the member got a partition; None if it does not own it."""
        epoch = self.assigned.get(slot)
        return self.revoking.get(slot) if epoch is None else epoch

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
    racks: TopicRacks = field(default_factory=dict)  # of the same, for the assignor that needs them
    racks_seen: TopicRacks = field(default_factory=dict)  # as of the last look
    settings: GroupSettings = field(default_factory=GroupSettings)
    later: Fields = field(default_factory=dict)  # fields of its record that a later version has written
    is_deleted: bool = False
    is_changed: bool = False
    is_definition_changed: bool = False
    history: History = field(default_factory=History)
    look_ms: int = 0  # a sweep may pass over the group before; 0: it has changed, or is a share group
    idle_since_ms: int | None = None  # steady time; None: it has changed since the last look for idle groups
    changed_members: set[str] = field(default_factory=set)
    changed_offsets: set[Slot] = field(default_factory=set)
    instances: dict[str, Instance] = field(default_factory=dict)  # readers whose state is kept here, by their id
    changed_instances: set[str] = field(default_factory=set)
    share: ShareState | None = None  # of a share group, from its first call on
    share_members: dict[str, ShareMember] = field(default_factory=dict)  # over Kafka's protocol
    classic: ClassicState | None = None  # from the first call of Kafka's classic protocol on
    delayed: dict[Slot, Delayed] = field(default_factory=dict)  # begins with a coordinator, from the stored times
    dead_letters: int = 0  # copied since the coordinator began

    @property
    def member_count(self) -> int:
        """The number of members. A group has those of one kind at a time."""
        classic = 0 if self.classic is None else len(self.classic.members)
        return len(self.members) + classic + len(self.share_members)

    @property
    def kind(self) -> str:
        """The kind of its members: that of the settings, or the classic one while it has members of that protocol."""
        return CLASSIC if self.classic is not None and self.classic.members else self.settings.kind

    @property
    def state(self) -> str:
        if self.share_members:
            return "stable"
        if not self.members:
            return "empty" if self.classic is None else CLASSIC_STATES[self.classic.phase]
        return "stable" if self.owners == self.target else "reconciling"

    @property
    def assignor(self) -> str:
        """Returns the assignor of the settings; without it, the one that most members over Kafka's protocol name."""
        named = Counter(
            member.kafka.assignor
            for _, member in sorted(self.members.items())
            if member.kafka is not None and member.kafka.assignor is not None
        )
        if "assignor" in self.config or not named:
            return self.settings.assignor
        return named.most_common(1)[0][0]

    def set_config(self, config: dict[str, Setting]) -> None:
        """Replaces the settings."""
        self.settings = stored_settings(config)
        self.config = config

    def last_active_ms(self) -> int:
        """Returns the wall time of the last member or commit."""
        shared = () if self.share is None else self.share.partitions.values()
        times = [*(offset.committed_ms for offset in self.offsets.values()), *(part.active_ms for part in shared)]
        return max([self.active_ms, *times])

    def is_idle(self, steady_ms: int) -> bool:
        """Returns whether the positions of a group without members are to be deleted. Looks are a minute apart.

        By steady time: a wall clock that is wrong for a moment deletes no positions.
        """
        if self.idle_since_ms is None:
            self.idle_since_ms = steady_ms
        return not self.instances and self.idle_since_ms + self.settings.offsets_retention_ms <= steady_ms

    def failed_records(self) -> Iterator[tuple[Slot, Delayed]]:
        """Yields the records that have failed and are not finished. Forgets those whose position has moved."""
        for slot, delayed in list(self.delayed.items()):
            committed = self.offsets.get(slot)
            if committed is not None and committed.failures and committed.offset == delayed.offset:
                yield slot, delayed
            else:
                del self.delayed[slot]

    def delayed_partitions(self, steady_ms: int) -> int:
        """Returns how many partitions wait for a record that failed."""
        return sum(delayed.until_ms > steady_ms for _, delayed in self.failed_records())

    def note_taken(self) -> None:
        """Notes that the records of all changes are on their way."""
        self.is_changed = self.is_definition_changed = False
        self.changed_members.clear()
        self.changed_offsets.clear()
        self.changed_instances.clear()
