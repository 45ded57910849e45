"""The members of a share group over Kafka's protocol (KIP-932), and the values of their calls.

In the memory of the coordinator alone: a new one has none, and they join again. They share records by locks, as callers
over HTTP do; membership says only which topics a member reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from gateway.groups.model.values import Client

Sizes = tuple[tuple[str, str, int], ...]  # of topics: name, id and partitions


@dataclass(slots=True)
class ShareMember:
    """A member. `assigned` has the topics that it was sent last."""

    member_id: str
    client: Client
    topics: frozenset[str]
    session_ends_ms: int
    epoch: int = 0
    assigned: Sizes | None = None


class ShareBeat(Struct, frozen=True, array_like=True):
    """A heartbeat. It joins with epoch 0 and leaves with -1. `topics` of None: unchanged."""

    group: str
    member_id: str
    member_epoch: int
    topics: tuple[str, ...] | None
    client: Client = Client()


class ShareAnswer(Struct, frozen=True, array_like=True):
    """The state of a member: all partitions of these topics are assigned. None: the member knows."""

    member_epoch: int
    heartbeat_ms: int = 0
    assigned: Sizes | None = None


class ShareMemberView(Struct, frozen=True, array_like=True):
    """A member, for tools."""

    member_id: str
    rack: str
    member_epoch: int
    client_id: str
    client_address: str
    topics: tuple[str, ...]
    assigned: Sizes


class ShareGroupView(Struct, frozen=True, array_like=True):
    """A share group, for tools."""

    state: str
    epoch: int
    members: tuple[ShareMemberView, ...]
