"""A coordinator for tests, with the time and the topics in the hands of the test."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import EngineError
from gateway.groups.core.coordinator import Coordinator
from gateway.groups.model.settings import CoordinatorLimits
from gateway.groups.model.values import (
    CommitCall,
    Grant,
    HeartbeatCall,
    LeaveCall,
    Membership,
    Now,
    PartitionRacks,
    PollCall,
    Position,
    ResetCall,
    Row,
    Slot,
    Token,
    TopicSize,
)

GROUP = "g"


class Topics(dict[str, TopicSize]):
    """Implements TopicSource. `placed` has the racks of the partitions of some topics."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.placed: dict[str, tuple[PartitionRacks, ...]] = {}

    def racks(self, name: str) -> tuple[PartitionRacks, ...]:
        return self.placed.get(name, ())

    def find(self, name: str) -> TopicSize | None:
        return self.get(name)

    def names(self) -> Collection[str]:
        return self.keys()


class Stage:
    """One coordinator and the log of its rows. Every call is checked: an error changes nothing."""

    def __init__(self, limits: CoordinatorLimits | None = None, **partitions: int) -> None:
        self.limits = limits or CoordinatorLimits()
        self.core = Coordinator(self.limits)
        self.topics = Topics({name: TopicSize(f"id-{name}", count) for name, count in partitions.items()})
        self.rows: list[Row] = []
        self.now_ms = 1_000_000

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def call(self, function: Any, *arguments: Any) -> Any:
        before = snapshot(self.core)
        try:
            return function(self.core, *arguments, self.now, self.topics)
        except EngineError:
            assert snapshot(self.core) == before, "an error has changed the state"
            raise
        finally:
            self.rows += self.core.take_rows()

    def poll(self, member: str, token: Token | None = None, topics: tuple[str, ...] | None = ("t",)) -> Grant:
        """Poll, and resolve missing positions at the start of the log."""
        grant: Grant = self.call(Coordinator.poll, PollCall(GROUP, member, topics, token))
        if starts := tuple(at(one, 0) for one in grant.assignment if one.offset < 0):
            grant = self.call(Coordinator.poll, PollCall(GROUP, member, topics, token, starts))
        return grant

    def heartbeat(
        self, member: str, epoch: int = 0, topics: tuple[str, ...] | None = ("t",), owned: set[int] | None = None
    ) -> Membership:
        """Send a heartbeat; `owned` are partitions of the topic t."""
        pairs = None if owned is None else tuple(("t", number) for number in sorted(owned))
        found: Membership = self.call(Coordinator.heartbeat, HeartbeatCall(GROUP, member, epoch, topics, pairs))
        return found

    def leave(self, member: str) -> None:
        self.call(Coordinator.leave, LeaveCall(GROUP, member))

    def commit(
        self, number: int, offset: int, member: str | None = None, epoch: int = 0, *, force: bool = False
    ) -> None:
        self.call(Coordinator.commit, CommitCall(GROUP, member, epoch, (self.position(number, offset),), force))

    def reset(self, number: int, offset: int, *, force: bool = False) -> None:
        self.call(Coordinator.reset, ResetCall(GROUP, (self.position(number, offset),), force))

    def sweep(self, ms: int = 0) -> None:
        self.now_ms += ms
        self.call(Coordinator.sweep)

    def fail_over(self) -> None:
        """Replace the coordinator by one that replays the log."""
        self.core = replayed(self.rows, self.limits)
        self.call(Coordinator.begin)

    def position(self, number: int, offset: int) -> Position:
        return Position("t", self.topics["t"].topic_id, number, offset)

    def committed(self, number: int) -> int | None:
        found = self.core.groups[GROUP].offsets.get(Slot("t", number))
        return None if found is None else found.offset

    def owned(self, member: str) -> set[int]:
        return {slot.partition for slot in self.core.groups[GROUP].members[member].assigned}


def at(position: Position, offset: int) -> Position:
    return Position(position.topic, position.topic_id, position.partition, offset)


def delivery(member: str, grant: Grant, count: int = 1) -> Token:
    """Return the token of a delivery of `count` records of each partition."""
    moved = tuple(at(one, one.offset + count) for one in grant.assignment)
    return Token(member, grant.member_epoch, grant.resets, moved, grant.delivery)


def numbers(grant: Grant | Membership) -> set[int]:
    return {one.partition for one in grant.assignment}


def replayed(rows: list[Row], limits: CoordinatorLimits) -> Coordinator:
    core = Coordinator(limits)
    for row in rows:
        core.replay(row)
    return core


def snapshot(core: Coordinator) -> dict[str, Any]:
    """Return the stored part of the state."""
    return {
        name: (
            group.epoch,
            group.resets,
            dict(group.config),
            dict(group.topics),
            dict(group.offsets),
            dict(group.owners),
            group.active_ms,
            {
                member.member_id: (
                    member.joined_epoch,
                    member.epoch,
                    member.topics,
                    member.client,
                    dict(member.assigned),
                    dict(member.revoking),
                )
                for member in group.members.values()
            },
        )
        for name, group in core.groups.items()
    }
