"""The state of one partition in the coordination store: leader, leader epoch, in-sync set.

A value. Every change is a compare-and-set on `partition_epoch`, the version that the store keeps with it. The
controller changes any field, a leader only the in-sync set.

A member of a set is a node with its broker epoch (`created` of its registration; newer ones are greater). Membership
promises that every record committed meanwhile is on the node's disk. A restart keeps the promise, a power loss keeps it
for fsynced records, a new disk breaks it. So a registration states the broker epoch since which the node has had its
disk (`disk_from`) and since which it has lost no unsynced records either (`survives_from`). With durability=group every
committed record was fsynced by every member, so only `disk_from` counts.

Invariants: the leader is in in_sync; in_sync and eligible are disjoint subsets of replicas; eligible is empty once
in_sync has min_in_sync members (KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.topic_settings import TopicSettings


class Member(NamedTuple):
    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The topic settings that replication depends on."""

    min_insync_replicas: int = 2
    is_unclean_allowed: bool = False
    is_fsync_demanded: bool = True  # durability=group

    @staticmethod
    def of(settings: TopicSettings) -> TopicRules:
        return TopicRules(settings.min_insync_replicas, settings.unclean_election, settings.durability == "group")

    def min_in_sync(self, replicas: int) -> int:
        """Returns the minimum for acks=all, capped at the number of replicas."""
        return min(self.min_insync_replicas, replicas)


@dataclass(frozen=True, slots=True)
class Registration:
    """The registration of a live node. `offline` has the partitions on failed disks, `log_from` those whose log is
    trusted only since this broker epoch. `intact_from` has those on a disk that is proven to be the newest copy of
    itself, whatever `disk_from` says of the node: their fsynced records are trusted since this broker epoch.
    """

    broker_epoch: int
    survives_from: int
    disk_from: int = 0
    rack: str = ""
    is_leaving: bool = False
    offline: frozenset[str] = frozenset()
    log_from: Mapping[str, int] = field(default_factory=dict, hash=False)
    intact_from: Mapping[str, int] = field(default_factory=dict, hash=False)


Registrations = Mapping[int, Registration]


@dataclass(frozen=True, slots=True)
class PartitionState:
    replicas: tuple[int, ...]  # the first is the preferred leader
    leader: Member | None
    leader_epoch: int
    in_sync: tuple[Member, ...]
    eligible: tuple[Member, ...] = ()  # KIP-966: left in_sync below min_in_sync, so they have all committed records
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    unclean_elections: int = 0
    unclean_epoch: int = 0  # the leader epoch of the last unclean election; unknown if 0 and there were some

    def __post_init__(self) -> None:
        in_sync, eligible = node_ids(self.in_sync), node_ids(self.eligible)
        assert self.leader is None or self.leader.node_id in in_sync
        assert in_sync <= set(self.replicas)
        assert eligible <= set(self.replicas) - in_sync

    @property
    def counted_replicas(self) -> int:
        """The replicas that min_insync_replicas is capped at: without those being added, which cannot be in sync before
        they have copied everything.
        """
        return len(self.replicas) - len(self.adding)

    def explains_truncation(self, epoch: int) -> bool:
        """True if records of this epoch may have been lost although they were committed: by a later unclean election.

        Also if a node of an older version has dropped the epoch of that election.
        """
        return self.unclean_epoch > epoch or (self.unclean_elections > 0 and self.unclean_epoch == 0)

    def is_in_sync(self, node_id: int) -> bool:
        return node_id in [member.node_id for member in self.in_sync]  # half the cost of any() over a generator


@dataclass(frozen=True, slots=True)
class VersionedState:
    """A state as it was read. A change of it names `partition_epoch`."""

    state: PartitionState
    partition_epoch: int


def node_ids(members: Iterable[Member]) -> set[int]:
    return {member.node_id for member in members}


def sorted_members(members: Iterable[Member]) -> tuple[Member, ...]:
    return tuple(sorted(members))


def is_log_intact(partition: str, member: Member, registrations: Registrations, rules: TopicRules) -> bool:
    """True if a member still has every record that was committed while it was one. True for a node that is away."""
    registration = registrations.get(member.node_id)
    if registration is None:
        return True
    disk_from = min(registration.disk_from, registration.intact_from.get(partition, registration.disk_from))
    trusted_from = disk_from if rules.is_fsync_demanded else registration.survives_from
    return max(trusted_from, registration.log_from.get(partition, 0)) <= member.broker_epoch


def initial_state(replicas: tuple[int, ...], registrations: Registrations) -> PartitionState:
    """Returns the state of a new partition: every log is empty, so all live replicas are in sync."""
    alive = [Member(node, registrations[node].broker_epoch) for node in replicas if node in registrations]
    assert alive, "a partition is given to nodes that are there"
    return PartitionState(replicas, leader=alive[0], leader_epoch=1, in_sync=sorted_members(alive))
