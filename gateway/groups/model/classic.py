"""A group of Kafka's classic protocol: its members and generation, and the values of its calls.

The bytes of protocols and assignments belong to the members: the group's leader assigns, and nothing here reads them.
Not in the records of a group: a new coordinator has no members, and they join again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from gateway.groups.model.values import Client, Position

CLASSIC = "classic"  # the kind, as lists show it


class Phase(StrEnum):
    """The state of a group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # members join
    COMPLETING = "CompletingRebalance"  # the leader assigns
    STABLE = "Stable"


class Refusal(StrEnum):
    """Why a call of a member is refused, by Kafka's names."""

    NONE = ""
    UNKNOWN_MEMBER = "unknown_member_id"
    ILLEGAL_GENERATION = "illegal_generation"
    REBALANCING = "rebalance_in_progress"
    INCONSISTENT = "inconsistent_group_protocol"
    MEMBER_ID_REQUIRED = "member_id_required"
    FENCED = "fenced_instance_id"
    SESSION_TIMEOUT = "invalid_session_timeout"
    FULL = "group_max_size_reached"
    UNRELEASED = "unreleased_instance_id"
    STALE = "stale_member_epoch"


@dataclass(slots=True)
class ClassicMember:
    """A member. `protocols` has its names in the order of its preference, each with its bytes.

    `has_joined`, `has_synced`: in the present rebalance. `seen_ms`: of its last call.
    """

    member_id: str
    instance_id: str | None
    client: Client
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    seen_ms: int
    assignment: bytes = b""
    has_joined: bool = False
    has_synced: bool = False

    def metadata(self, protocol: str) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class ClassicState:
    """`pending` are ids that were given out and not used yet, each until a steady time. Members are by their arrival.

    `deadline_ms`: until when members may join, or sync; `delay_ms`: before it an empty group waits for more members.
    """

    phase: Phase = Phase.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, ClassicMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    deadline_ms: int = 0
    delay_ms: int | None = None


class JoinCall(Struct, frozen=True, array_like=True):
    """Joins or joins again. `new_member_id` is the id of a member that has none yet.

    `must_know_id`: such a member first gets its id. `may_skip`: a leader may be asked not to assign.
    """

    group: str
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_ms: int
    rebalance_ms: int
    new_member_id: str
    must_know_id: bool
    may_skip: bool
    client: Client = Client()


class JoinAnswer(Struct, frozen=True, array_like=True):
    """The generation that a member is in. `is_parked`: the rebalance goes on; call again by `wake_ms`, with this id."""

    refusal: str = Refusal.NONE
    member_id: str = ""
    is_parked: bool = False
    wake_ms: int = 0
    generation: int = -1
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skips_assignment: bool = False


class MemberCall(Struct, frozen=True, array_like=True):
    """A heartbeat of a member, or the part of another call that says which member it is of."""

    group: str
    member_id: str
    instance_id: str | None
    generation: int


class SyncCall(Struct, frozen=True, array_like=True):
    """Asks for the assignment of a member; the leader's has those of all. Empty names are not compared."""

    member: MemberCall
    assignments: tuple[tuple[str, bytes], ...]
    protocol_type: str = ""
    protocol: str = ""


class SyncAnswer(Struct, frozen=True, array_like=True):
    """The assignment of a member, or that the leader has not sent it yet."""

    refusal: str = Refusal.NONE
    is_parked: bool = False
    wake_ms: int = 0
    assignment: bytes = b""
    protocol_type: str = ""
    protocol: str = ""


class ClassicLeaveCall(Struct, frozen=True, array_like=True):
    """Removes members, each by its id or its instance id."""

    group: str
    members: tuple[tuple[str, str | None], ...]


class ClassicCommitCall(Struct, frozen=True, array_like=True):
    """Sets positions in any direction. A generation of -1: not as a member, and the group must have none."""

    member: MemberCall
    positions: tuple[Position, ...]


class ClassicMemberView(Struct, frozen=True, array_like=True):
    """A member as tools show it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_address: str
    metadata: bytes
    assignment: bytes


class ClassicView(Struct, frozen=True, array_like=True):
    """A group as tools of Kafka show it. `slots` are the partitions of a member over HTTP, in place of bytes."""

    state: str
    protocol_type: str
    protocol: str
    members: tuple[ClassicMemberView, ...]
    slots: tuple[tuple[tuple[str, int], ...], ...] = ()
