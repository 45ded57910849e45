"""The values of the coordination store and their bytes, and the plain forms that processes of a node exchange.

A plain form has only types of both JSON and MessagePack; `to_plain` and `from_plain` are inverse. A value that no node
of this version writes is Corrupt: a node never guesses about leadership.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NotRequired, TypedDict, TypeVar

import orjson

from engine.errors import Corrupt
from engine.topic_settings import TopicSettings, topic_settings
from replication.cores.partition_state import Member, PartitionState, Registration, TopicRules, VersionedState

LEVEL_MAX = 2  # the feature level that this version serves (feature_level.py): the format of /cluster
_RULES: dict[str, Any] = {
    name: getattr(TopicSettings(), name) for name in ("min_insync_replicas", "unclean_election", "durability")
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The cluster's id and secret. A node that has the secret is trusted by every node.

    `next_secret` and `previous_secret` are there while the secret rotates: nodes accept them, and send `secret`.
    `is_claimed`: the import of a standalone directory, or a rebuild of the store, is unfinished. `is_rebuilt`: it was
    rebuilt from data directories; others that were in the cluster before are refused.
    """

    cluster_id: str
    secret: str = field(repr=False)
    is_claimed: bool = False
    is_rebuilt: bool = False
    next_secret: str = field(default="", repr=False)
    previous_secret: str = field(default="", repr=False)
    level: int = LEVEL_MAX

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return what nodes accept; the first one is what they send."""
        return (self.secret, *filter(None, (self.next_secret, self.previous_secret)))

    def has_secret_of(self, other: ClusterIdentity) -> bool:
        """True if a node that knows one of them accepts a node that knows the other."""
        return self.cluster_id == other.cluster_id and not set(self.secrets).isdisjoint(other.secrets)

    def at_level(self, level: int) -> ClusterIdentity:
        return replace(self, level=level)

    def rotated(self, new_secret: str) -> ClusterIdentity:
        """Return the next step of a rotation: all accept the new secret, all send it, the old one is forgotten.

        Nodes learn of a step one after the other, so a node accepts what nodes of the steps before and after it send.
        """
        if self.previous_secret:
            return replace(self, previous_secret="")
        if self.next_secret:
            return replace(self, secret=self.next_secret, next_secret="", previous_secret=self.secret)
        return replace(self, next_secret=new_secret)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """The registration of a live node. `broker_epoch` is the number of the registration.

    `disk_from` and `survives_from` (replication/cluster/registration_state.py): 0 means this registration.
    `log_from`: the partitions whose log is trusted only since a later registration than `disk_from`; 0 means this one.
    `intact_from`: the partitions whose fsynced records are trusted since an earlier one than `disk_from`; 0: always.
    `internal_urls` has one entry per shard, so its length is the number of shards.
    """

    node_id: int
    broker_epoch: int
    url: str
    shard_urls: tuple[str, ...] = ()
    internal_urls: tuple[str, ...] = ()
    rack: str = ""
    version: str = ""
    directory_id: str = ""
    survives_from: int = 0
    disk_from: int = 0
    is_leaving: bool = False
    offline: frozenset[str] = frozenset()
    nonce: str = ""  # distinguishes registrations of one node before their broker epoch is known
    log_from: Mapping[str, int] = field(default_factory=dict)
    intact_from: Mapping[str, int] = field(default_factory=dict)
    tls: bool = False  # its internal ports accept TLS
    kafka: str = ""  # host:port of its listener of Kafka's protocol, if it has one
    level: int = 1  # the highest feature level that it serves

    @property
    def registration(self) -> Registration:
        return Registration(
            self.broker_epoch,
            self.survives_from or self.broker_epoch,
            self.disk_from or self.broker_epoch,
            self.rack,
            self.is_leaving,
            self.offline,
            {name: epoch or self.broker_epoch for name, epoch in self.log_from.items()},
            self.intact_from,
        )


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic of the cluster. `config` has the settings that differ from the defaults."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    config: Mapping[str, object] = field(default_factory=dict)
    created_ms: int = 0

    @property
    def settings(self) -> TopicSettings:
        return topic_settings(self.config)

    @property
    def rules(self) -> TopicRules:
        """The settings that replication needs. Ignores the others, which a newer version may have written."""
        values: dict[str, Any] = {name: self.config.get(name, default) for name, default in _RULES.items()}
        return TopicRules(values["min_insync_replicas"], values["unclean_election"], values["durability"] == "group")


class Proposal(NamedTuple):
    """A compare-and-set of one partition's state: applied if `partition_epoch` is still current."""

    topic_id: str
    number: int
    partition_epoch: int
    state: PartitionState


class Confirmed(NamedTuple):
    partition_epoch: int


class Rejected(NamedTuple):
    """Another writer was first. `found` is the current state; None: the partition is deleted."""

    found: VersionedState | None


class OutcomeUnknown(NamedTuple):
    """The session ended before the outcome was known; the next read of the state shows it."""


Outcome = Confirmed | Rejected | OutcomeUnknown


class RegistrationFields(TypedDict):
    """The plain form of a registration in the store, whose key has the node id and the broker epoch."""

    url: str
    shard_urls: Sequence[str]
    internal_urls: Sequence[str]
    rack: str
    version: str
    directory_id: str
    survives_from: int
    disk_from: int
    is_leaving: bool
    offline: Sequence[str]
    nonce: str
    log_from: NotRequired[Mapping[str, int]]
    intact_from: NotRequired[Mapping[str, int]]
    tls: NotRequired[bool]
    kafka: NotRequired[str]
    level: NotRequired[int]


class NodeFields(RegistrationFields):
    """The plain form of a NodeInfo."""

    node_id: int
    broker_epoch: int


class TopicFields(TypedDict):
    """The plain form of a TopicEntry."""

    topic: str
    topic_id: str
    partitions: int
    replication_factor: int
    config: Mapping[str, object]
    created_ms: int


# Partition states: in a block, and between processes.


def state_to_plain(versioned: VersionedState) -> list[Any]:
    state = versioned.state
    return [
        versioned.partition_epoch,
        list(state.replicas),
        None if state.leader is None else list(state.leader),
        state.leader_epoch,
        [list(member) for member in state.in_sync],
        [list(member) for member in state.eligible],
        list(state.adding),
        list(state.removing),
        state.unclean_elections,
        state.unclean_epoch,
    ]


def state_from_plain(plain: list[Any]) -> VersionedState:
    """Decodes a state. Fields that a newer version appends are ignored, and lost when this version writes the state
    back.
    """
    epoch, replicas, leader, leader_epoch, in_sync, eligible, adding, removing, unclean, *more = plain
    state = PartitionState(
        tuple(replicas),
        None if leader is None else Member(*leader),
        leader_epoch,
        tuple(Member(*member) for member in in_sync),
        tuple(Member(*member) for member in eligible),
        tuple(adding),
        tuple(removing),
        unclean,
        more[0] if more else 0,
    )
    return VersionedState(state, epoch)


def states_to_plain(states: list[tuple[str, int, VersionedState]]) -> list[Any]:
    return [[topic_id, number, *state_to_plain(versioned)] for topic_id, number, versioned in states]


def states_from_plain(plain: list[Any]) -> list[tuple[str, int, VersionedState]]:
    return [(topic_id, number, state_from_plain(rest)) for topic_id, number, *rest in plain]


def block_to_bytes(states: Mapping[int, VersionedState]) -> bytes:
    return orjson.dumps({str(number): state_to_plain(states[number]) for number in sorted(states)})


def block_from_bytes(key: str, value: bytes) -> dict[int, VersionedState]:
    def decoded(plain: Any) -> dict[int, VersionedState]:
        return {int(number): state_from_plain(state) for number, state in plain.items()}

    return decode_value(key, value, decoded)


# Nodes and topics.


def node_to_plain(node: NodeInfo) -> NodeFields:
    return {**_registration_to_plain(node), "node_id": node.node_id, "broker_epoch": node.broker_epoch}


def _registration_to_plain(node: NodeInfo) -> RegistrationFields:
    plain: RegistrationFields = {
        "url": node.url,
        "shard_urls": list(node.shard_urls),
        "internal_urls": list(node.internal_urls),
        "rack": node.rack,
        "version": node.version,
        "directory_id": node.directory_id,
        "survives_from": node.survives_from,
        "disk_from": node.disk_from,
        "is_leaving": node.is_leaving,
        "offline": sorted(node.offline),
        "nonce": node.nonce,
        "log_from": dict(node.log_from),
    }
    if node.intact_from:  # of few nodes, and of none for long
        plain["intact_from"] = dict(node.intact_from)
    if node.tls:
        plain["tls"] = True
    if node.kafka:
        plain["kafka"] = node.kafka
    if node.level > 1:
        plain["level"] = node.level
    return plain


def node_from_plain(plain: NodeFields) -> NodeInfo:
    """Decodes a node. Ignores fields of a newer version; an older one may lack those that have a default."""
    lists = {"shard_urls": tuple(plain["shard_urls"]), "internal_urls": tuple(plain["internal_urls"])}
    fields: dict[str, Any] = {name: value for name, value in plain.items() if name in NodeInfo.__dataclass_fields__}
    return NodeInfo(**{**fields, **lists, "offline": frozenset(plain["offline"])})


def node_to_bytes(node: NodeInfo) -> bytes:
    """Encodes a registration, without the node id and the broker epoch, which the key has."""
    return orjson.dumps(_registration_to_plain(node))


def node_from_bytes(key: str, value: bytes, broker_epoch: int) -> NodeInfo:
    node_id = int(key.rpartition("/")[2])

    def decoded(plain: RegistrationFields) -> NodeInfo:
        return node_from_plain({**plain, "node_id": node_id, "broker_epoch": broker_epoch})

    return decode_value(key, value, decoded)


def topic_to_plain(topic: TopicEntry) -> TopicFields:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "config": dict(topic.config),
        "created_ms": topic.created_ms,
    }


def topic_from_plain(plain: TopicFields) -> TopicEntry:
    return TopicEntry(
        plain["topic"],
        plain["topic_id"],
        plain["partitions"],
        plain["replication_factor"],
        plain["config"],
        plain["created_ms"],
    )


def topic_to_bytes(topic: TopicEntry) -> bytes:
    return orjson.dumps(topic_to_plain(topic))


def topic_from_bytes(key: str, value: bytes) -> TopicEntry:
    return decode_value(key, value, topic_from_plain)


def identity_to_bytes(identity: ClusterIdentity) -> bytes:
    marks = {"claimed": identity.is_claimed, "rebuilt": identity.is_rebuilt}
    fields = {"cluster_id": identity.cluster_id, "secret": identity.secret, "format": identity.level}
    rotating = {"next_secret": identity.next_secret, "previous_secret": identity.previous_secret}
    marked = {name: True for name, is_set in marks.items() if is_set}
    return orjson.dumps({**fields, **marked, **{name: one for name, one in rotating.items() if one}})


def identity_from_bytes(key: str, value: bytes) -> ClusterIdentity:
    """Decodes the cluster's identity. Raises Corrupt if a newer version wrote it."""

    def decoded(plain: Any) -> ClusterIdentity:
        if (level := plain["format"]) > LEVEL_MAX:
            text = f"the cluster has feature level {level}, and this version of penstock serves levels to {LEVEL_MAX}"
            raise Corrupt(text, hint="install the version that this node had, or a newer one; a level is never lowered")
        return ClusterIdentity(
            plain["cluster_id"],
            plain["secret"],
            plain.get("claimed", False) is True,
            plain.get("rebuilt", False) is True,
            plain.get("next_secret", ""),
            plain.get("previous_secret", ""),
            level,
        )

    return decode_value(key, value, decoded)


def tombstone_to_bytes(topic: str, deleted_ms: int) -> bytes:
    return orjson.dumps({"topic": topic, "deleted_ms": deleted_ms})


def deleted_ms_from_bytes(key: str, value: bytes) -> int:
    return decode_value(key, value, lambda plain: int(plain["deleted_ms"]))


# Requests of shards to their supervisor.


def proposal_to_plain(proposal: Proposal) -> list[Any]:
    state = VersionedState(proposal.state, proposal.partition_epoch)
    return [proposal.topic_id, proposal.number, *state_to_plain(state)]


def proposal_from_plain(plain: list[Any]) -> Proposal:
    topic_id, number, *rest = plain
    versioned = state_from_plain(rest)
    return Proposal(topic_id, number, versioned.partition_epoch, versioned.state)


def outcome_to_plain(outcome: Outcome) -> list[Any]:
    match outcome:
        case Confirmed(epoch):
            return ["confirmed", epoch]
        case Rejected(newer):
            return ["refused", None if newer is None else state_to_plain(newer)]
        case OutcomeUnknown():
            return ["unsure"]


def outcome_from_plain(plain: list[Any]) -> Outcome:
    """Decodes an outcome. Raises ValueError."""
    match plain:
        case ["confirmed", epoch]:
            return Confirmed(epoch)
        case ["refused", newer]:
            return Rejected(None if newer is None else state_from_plain(newer))
        case ["unsure"]:
            return OutcomeUnknown()
    raise ValueError(f"{plain!r} is not the outcome of a proposal")


def check_format(key: str, found: int, known: int) -> None:
    """Raises Corrupt for a newer format than the known one."""
    if found > known:
        raise Corrupt(f"the coordination store's {key} is of format {found}, newer than penstock knows here: {known}")


def decode_value(key: str, value: bytes, decode: Callable[[Any], T]) -> T:
    """Returns what `decode` makes of a value in JSON. Raises Corrupt for one that it does not understand."""
    try:
        return decode(orjson.loads(value))
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError, AssertionError) as error:
        hint = "another program or a newer version of penstock wrote it"
        raise Corrupt(f"the coordination store's {key} cannot be decoded: {error!r}", hint=hint) from error
