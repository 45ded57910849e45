"""The values of the consumer protocol of groups (KIP-848): a heartbeat, its answer, and a description."""

from __future__ import annotations

from msgspec import Struct

from gateway.groups.model.classic import Refusal
from gateway.groups.model.values import Client

JOIN, LEAVE, AWAY = 0, -1, -2  # in place of a member's epoch; AWAY: an instance restarts

Pairs = tuple[tuple[str, int], ...]  # partitions: a topic and a number each


class ConsumerCall(Struct, frozen=True, array_like=True):
    """A heartbeat of a member. None: unchanged. An empty `expression` is none; `readable` are prefixes for it.

    `is_whole`: the member says all of itself, and is answered with its whole assignment.
    """

    group: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    topics: tuple[str, ...] | None
    expression: str | None
    readable: tuple[str, ...] | None
    assignor: str | None
    owned: Pairs | None
    rebalance_timeout_ms: int | None
    is_whole: bool
    client: Client = Client()


class ConsumerAnswer(Struct, frozen=True, array_like=True):
    """The state of a member. `assignment` has ids of topics; None: it is the one that the member knows."""

    member_epoch: int
    refusal: str = Refusal.NONE
    heartbeat_ms: int = 0
    assignment: Pairs | None = None


class ConsumerMemberView(Struct, frozen=True, array_like=True):
    """A member, for tools. `target` are the partitions that it gets once others have given them up."""

    member_id: str
    instance_id: str | None
    rack: str
    member_epoch: int
    client_id: str
    client_address: str
    topics: tuple[str, ...]
    expression: str | None
    assigned: Pairs
    target: Pairs


class ConsumerView(Struct, frozen=True, array_like=True):
    """A group, for tools. `topic_ids` are those of the partitions of its members."""

    state: str
    epoch: int
    assignor: str
    members: tuple[ConsumerMemberView, ...]
    topic_ids: dict[str, str]
