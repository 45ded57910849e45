"""What the coordination store says of one partition: who leads, since which epoch, and who is in sync.

A value. Every change of it is a compare-and-set on its `partition_epoch`, the version that the store keeps beside it;
the controller changes anything, a leader its in-sync set only. Who may vouch for what is told here, in one place:

A member of a set is a node in one *incarnation* (its registration with the store, newer ones greater). It vouches that
everything committed while it was a member is on its disk. A restart keeps that; a power loss keeps what was fsynced; a
new disk keeps nothing. So a registration says since which incarnation the node has had its disk (`disk_from`) and since
which nothing unsynced was lost either (`survives_from`). With durability=group what is committed was fsynced by every
member, so there only the disk counts.

Invariants: leader in in_sync; in_sync and eligible are disjoint, both within replicas; eligible is empty once in_sync
has min_in_sync members (KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.settings import TopicSettings


class Member(NamedTuple):
    node_id: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The settings of a topic that replication decides by."""

    min_insync_replicas: int = 2
    is_unclean_allowed: bool = False
    is_fsync_demanded: bool = True  # durability=group

    @staticmethod
    def of(settings: TopicSettings) -> TopicRules:
        return TopicRules(settings.min_insync_replicas, settings.unclean_election, settings.durability == "group")

    def min_in_sync(self, replicas: int) -> int:
        """Never more than there are replicas: such a topic could not be written."""
        return min(self.min_insync_replicas, replicas)


@dataclass(frozen=True, slots=True)
class Registration:
    """A node that is alive, as it registered itself. `offline`: partitions that its disk has failed."""

    incarnation: int
    survives_from: int
    disk_from: int = 0
    rack: str = ""
    is_leaving: bool = False
    offline: frozenset[str] = frozenset()


Registrations = Mapping[int, Registration]


@dataclass(frozen=True, slots=True)
class PartitionState:
    replicas: tuple[int, ...]  # the first is the preferred leader
    leader: Member | None
    leader_epoch: int
    in_sync: tuple[Member, ...]
    eligible: tuple[Member, ...] = ()  # KIP-966: left while too few were in sync, so they hold all that is committed
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    unclean_elections: int = 0

    def __post_init__(self) -> None:
        in_sync, eligible = node_ids(self.in_sync), node_ids(self.eligible)
        assert self.leader is None or self.leader.node_id in in_sync
        assert in_sync <= set(self.replicas)
        assert eligible <= set(self.replicas) - in_sync

    @property
    def counted_replicas(self) -> int:
        """What min_insync_replicas is held against: not those that a move is about to add. They cannot be in sync
        before they have copied everything, and the partition must be written meanwhile.
        """
        return len(self.replicas) - len(self.adding)

    def is_in_sync(self, node_id: int) -> bool:
        return node_id in [member.node_id for member in self.in_sync]  # half of what any() over a generator costs


@dataclass(frozen=True, slots=True)
class VersionedState:
    """A state as it was read: `partition_epoch` is what a change of it must name."""

    state: PartitionState
    partition_epoch: int


def node_ids(members: Iterable[Member]) -> set[int]:
    return {member.node_id for member in members}


def sorted_members(members: Iterable[Member]) -> tuple[Member, ...]:
    return tuple(sorted(members))


def vouches(member: Member, registrations: Registrations, rules: TopicRules) -> bool:
    """Whether what the member had on its disk as a member is still there. Of a node that is away it is believed."""
    found = registrations.get(member.node_id)
    if found is None:
        return True
    return (found.disk_from if rules.is_fsync_demanded else found.survives_from) <= member.incarnation


def initial_state(replicas: tuple[int, ...], registrations: Registrations) -> PartitionState:
    """A new partition: its log is empty everywhere, so all replicas that are alive are in sync."""
    alive = [Member(node, registrations[node].incarnation) for node in replicas if node in registrations]
    assert alive, "a partition is given to nodes that are there"
    return PartitionState(replicas, leader=alive[0], leader_epoch=1, in_sync=sorted_members(alive))
