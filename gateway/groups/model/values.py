"""The values that calls of a group take and return. Frozen; links carry them in array form."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, NamedTuple, Protocol

from msgspec import Struct

from gateway.access.names import NAME
from gateway.groups.share.values import DeadLetter, HolderView, ShareView

Setting = str | int | bool | None

START_POLICY = -1  # in place of a position: by the group's setting `start`
START_EARLIEST = -2  # in place of a position: the log's start


class Now(NamedTuple):
    """The time of a call: steady milliseconds for sessions, wall milliseconds for records."""

    steady_ms: int
    wall_ms: int


class Slot(NamedTuple):
    """A partition of a topic, by the topic's name."""

    topic: str
    partition: int


class TopicSize(NamedTuple):
    """A topic as the coordinator knows it."""

    topic_id: str
    partitions: int


class PartitionRacks(NamedTuple):
    """The racks of a partition's leader and of its replicas; empty: unknown."""

    leader: str
    replicas: frozenset[str]


class TopicSource(Protocol):
    """The existing topics. `names` has those that clients may read, `racks` has an entry for each partition."""

    def find(self, name: str) -> TopicSize | None: ...
    def names(self) -> Collection[str]: ...
    def racks(self, name: str) -> tuple[PartitionRacks, ...]: ...


class TopicPattern(Struct, frozen=True, array_like=True):
    """Topics of a member by regular expression, beside those that it names.

    `readable`: prefixes of the names that the member may read; None: all.
    """

    include: str
    exclude: str = ""
    readable: tuple[str, ...] | None = None
    named: tuple[str, ...] = ()


class Position(Struct, frozen=True, array_like=True):
    """The next offset to read of one partition. Committed `metadata` is the client's own text."""

    topic: Annotated[str, NAME]
    topic_id: str
    partition: int
    offset: int
    metadata: str = ""
    leader_epoch: int = -1  # of the record before; -1: unknown

    @property
    def slot(self) -> Slot:
        return Slot(self.topic, self.partition)


class Failure(Struct, frozen=True, array_like=True):
    """A record that a member could not process. `error` is its own text."""

    topic: str
    partition: int
    offset: int
    error: str = ""

    @property
    def slot(self) -> Slot:
        return Slot(self.topic, self.partition)


class Client(Struct, frozen=True, array_like=True):
    """The sender of a call, as `describe` shows it."""

    client_id: str = ""
    address: str = ""
    rack: str = ""


class KafkaMember(Struct, frozen=True, array_like=True):
    """A member over Kafka's protocol (KIP-848). `assignor` is the one that it asks for.

    `is_away`: its instance has left for a restart, and keeps its partitions until its session ends.
    """

    instance_id: str | None = None
    assignor: str | None = None
    is_away: bool = False


class HeartbeatCall(Struct, frozen=True, array_like=True):
    """Joins with epoch 0, else keeps a session alive. `topics` and `owned` of None: unchanged, unknown.

    `kafka` is given by a member over Kafka's protocol, when it joins.
    """

    group: str
    member_id: str
    member_epoch: int
    topics: tuple[str, ...] | None = None
    owned: tuple[tuple[str, int], ...] | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    client: Client = Client()
    pattern: TopicPattern | None = None
    kafka: KafkaMember | None = None


class PollCall(Struct, frozen=True, array_like=True):
    """Begins a poll. Joins if the member is unknown and `topics` are given.

    `token` is a decoded token. `starts` are positions of partitions that have none yet. `delivery` is the last one of a
    poll that has waited since, and holds no records; 0: the poll begins. `failed` are records of the token's delivery.
    `copied` are the positions behind dead letters whose copies are committed, `copy_error` is why others are not.
    """

    group: str
    member_id: str
    topics: tuple[str, ...] | None = None
    token: Token | None = None
    starts: tuple[Position, ...] = ()
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    client: Client = Client()
    pattern: TopicPattern | None = None
    delivery: int = 0
    failed: tuple[Failure, ...] = ()
    copied: tuple[Position, ...] = ()
    copy_error: str = ""


class Token(Struct, frozen=True, array_like=True):
    """One delivery: the member, its epoch and the group's count of resets at that time, and the next offsets.

    `delivery` counts the member's deliveries; 0: the token is of a node that did not count them.
    """

    member_id: str
    member_epoch: int
    resets: int
    positions: tuple[Position, ...]
    delivery: int = 0


class Membership(Struct, frozen=True, array_like=True):
    """A member's state. Positions of `assignment` are committed ones, or a START_ value: `start` is the group's."""

    member_id: str
    member_epoch: int
    assignment: tuple[Position, ...]
    heartbeat_ms: int
    session_timeout_ms: int
    start: str = "earliest"
    start_time_ms: int | None = None


class DelayedPartition(Struct, frozen=True, array_like=True):
    """A partition that waits for its failed record, and for how long from now on."""

    topic: str
    partition: int
    left_ms: int

    @property
    def slot(self) -> Slot:
        return Slot(self.topic, self.partition)


class Grant(Struct, frozen=True, array_like=True):
    """The partitions that a poll may read now. `version` changes with the assignment.

    `resets` and `delivery` belong into the token. `priorities` are topics in the order in which they are read. `dead`
    are failed records that are to be copied to the dead-letter topic, `delayed` partitions must not be read yet.

    The answer may leave once the coordinator `hosting` has stored its batch `sequence`; 0: nothing has to be stored.
    """

    member_epoch: int
    resets: int
    version: int
    assignment: tuple[Position, ...]
    start: str
    auto_commit: bool
    hosting: int = 0
    sequence: int = 0
    delivery: int = 0
    start_time_ms: int | None = None
    priorities: tuple[str, ...] = ()
    partition_bytes_max: int | None = None
    dead: tuple[DeadLetter, ...] = ()
    delayed: tuple[DelayedPartition, ...] = ()


class LeaveCall(Struct, frozen=True, array_like=True):
    group: str
    member_id: str


class CommitCall(Struct, frozen=True, array_like=True):
    """Commits positions, as a member, or without membership if the group is empty or `force` is set."""

    group: str
    member_id: str | None
    member_epoch: int
    positions: tuple[Position, ...]
    force: bool = False


class ResetCall(Struct, frozen=True, array_like=True):
    """Sets positions in any direction. Tokens from before cannot commit over them.

    `resets` is the count of resets that the sender knows; of another count the call changes nothing. None: any.
    """

    group: str
    positions: tuple[Position, ...]
    force: bool = False
    resets: int | None = None


class ForgetCall(Struct, frozen=True, array_like=True):
    """Deletes committed positions of a topic; of one of its partitions, if it is given."""

    group: str
    topic: str
    partition: int | None = None


class PushCall(Struct, frozen=True, array_like=True):
    """Sets what is pushed for a group, as text that the coordinator does not read. `positions` are for a new group.

    A change has `before`, the text that it was made from; `is_new`: there must be none. Coordinators of earlier
    releases do not look at them.
    """

    group: str
    definition: str
    positions: tuple[Position, ...] = ()
    before: str | None = None
    is_new: bool = False


class ConfigCall(Struct, frozen=True, array_like=True):
    """Creates a group, or changes the given settings. A value of None restores the default."""

    group: str
    config: dict[str, Setting]


class MemberView(Struct, frozen=True, array_like=True):
    """A member, for people. `revoking` are partitions that it has not given up yet."""

    member_id: str
    member_epoch: int
    client_id: str
    client_address: str
    topics: tuple[str, ...]
    assignment: tuple[tuple[str, int], ...]
    revoking: tuple[tuple[str, int], ...]
    session_left_ms: int
    pattern: TopicPattern | None = None
    rack: str = ""


class OffsetView(Struct, frozen=True, array_like=True):
    """A committed position, for people. `member_id` owns the partition; empty: no member does."""

    topic: str
    topic_id: str
    partition: int
    offset: int | None
    metadata: str
    committed_ms: int
    member_id: str
    leader_epoch: int = -1


class GroupView(Struct, frozen=True, array_like=True):
    """A group, for people."""

    group: str
    state: str
    epoch: int
    config: dict[str, Setting]
    members: tuple[MemberView, ...]
    offsets: tuple[OffsetView, ...]
    shares: tuple[ShareView, ...] = ()
    holders: tuple[HolderView, ...] = ()


class LagRow(Struct, frozen=True, array_like=True):
    """The lag of a group in one topic that it has a position in. `seconds` is 0 where no age is measured."""

    topic: str
    records: int
    seconds: float


class GroupRow(Struct, frozen=True, array_like=True):
    """A line of the list of groups.

    `lags` has the topics in which the group lacks the most, LAG_ROWS_MAX at most; None: it is not measured yet.
    """

    group: str
    state: str
    members: int
    kind: str = "consumer"
    protocol_type: str = "consumer"  # of Kafka's protocol
    phase: str = ""  # of a group of Kafka's classic protocol
    lags: tuple[LagRow, ...] | None = None
    lag_records: int = 0  # in all topics
    lag_s: float = 0.0


class Row(NamedTuple):
    """A record of the groups topic: the key, and the value; None removes the key."""

    key: bytes
    value: bytes | None


def slots_of(pairs: Iterable[tuple[str, int]]) -> set[Slot]:
    return {Slot(*pair) for pair in pairs}
