"""An instance: a reader of a group whose state the coordinator keeps, for clients that keep none between requests.

It is subscribed, as a member of the group with its own id, or has partitions assigned by hand, or neither. The
positions that it has read are its own: those that the group has committed may be behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec import Struct

from gateway.groups.model.values import Client, Position, Slot, TopicPattern


class ReadPosition(NamedTuple):
    """The next offset that an instance reads. `epoch`: at which its member got the partition; 0: by hand."""

    topic_id: str
    offset: int
    epoch: int


@dataclass(slots=True)
class Instance:
    """`settings` is text of its client, which nothing here reads; `nonce` is that of the call that has created it.
    `commits`: each read commits what was read before.

    `topics` of None: it is not subscribed. `assigned` of None: it has no partitions by hand. `version` counts the
    changes of what it reads. These begin with a coordinator: `seen_ms` is the time of its last call, 0: none yet;
    until `lease_ends_ms` the request `holder` reads.
    """

    settings: str
    idle_ms: int
    nonce: str
    commits: bool = False
    topics: tuple[str, ...] | None = None
    pattern: TopicPattern | None = None
    client: Client = field(default_factory=Client)
    assigned: dict[Slot, str] | None = None
    read: dict[Slot, ReadPosition] = field(default_factory=dict)
    version: int = 0
    seen_ms: int = 0
    holder: str = ""
    lease_ends_ms: int = 0


class _Record(Struct, frozen=True, omit_defaults=True):
    settings: str
    idle_ms: int
    nonce: str
    version: int
    commits: bool = False
    topics: tuple[str, ...] | None = None
    pattern: TopicPattern | None = None
    client: Client = Client()
    assigned: tuple[tuple[str, int, str], ...] | None = None
    read: tuple[tuple[str, int, str, int, int], ...] = ()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Record).decode


def encode_instance(instance: Instance) -> bytes:
    """Returns the record of an instance."""
    assigned = instance.assigned
    return _encode(
        _Record(
            instance.settings,
            instance.idle_ms,
            instance.nonce,
            instance.version,
            instance.commits,
            instance.topics,
            instance.pattern,
            instance.client,
            None if assigned is None else tuple((*slot, topic_id) for slot, topic_id in sorted(assigned.items())),
            tuple((*slot, *position) for slot, position in sorted(instance.read.items())),
        )
    )


def decode_instance(data: bytes) -> Instance:
    """Returns the instance of a record."""
    record = _decode(data)
    assigned = record.assigned
    return Instance(
        record.settings,
        record.idle_ms,
        record.nonce,
        record.commits,
        record.topics,
        record.pattern,
        record.client,
        None if assigned is None else {Slot(topic, number): topic_id for topic, number, topic_id in assigned},
        {
            Slot(topic, number): ReadPosition(topic_id, offset, epoch)
            for topic, number, topic_id, offset, epoch in record.read
        },
        record.version,
    )


# The values of calls


class CreateInstance(Struct, frozen=True, array_like=True):
    """Creates an instance, once for a nonce. `commits`: each read commits what was read before."""

    group: str
    instance_id: str
    settings: str
    idle_ms: int
    nonce: str
    commits: bool


class InstanceCall(Struct, frozen=True, array_like=True):
    """Looks at an instance, or deletes it."""

    group: str
    instance_id: str


class SubscribeInstance(Struct, frozen=True, array_like=True):
    """Subscribes to topics, or to what matches the pattern; to neither: ends the subscription and the assignment."""

    group: str
    instance_id: str
    topics: tuple[str, ...] = ()
    pattern: TopicPattern | None = None
    client: Client = Client()


class PlaceInstance(Struct, frozen=True, array_like=True):
    """Assigns partitions by hand, or with `is_seek` moves the positions of assigned ones."""

    group: str
    instance_id: str
    positions: tuple[Position, ...]
    is_seek: bool = False


class BeginRead(Struct, frozen=True, array_like=True):
    """Begins a read: what was read before counts as processed. No other request reads until `EndRead`, or the lease."""

    group: str
    instance_id: str
    holder: str
    lease_ms: int


class EndRead(Struct, frozen=True, array_like=True):
    """Ends a read with the next positions; none: nothing was read. No-op if the instance has changed since."""

    group: str
    instance_id: str
    holder: str
    version: int
    positions: tuple[Position, ...]


class CommitInstance(Struct, frozen=True, array_like=True):
    """Commits positions; with none, those of all that was read."""

    group: str
    instance_id: str
    positions: tuple[Position, ...]


class InstanceView(Struct, frozen=True, array_like=True):
    """An instance after a call. `positions` are those of its partitions, or a START_ value.

    `busy_ms`: another request reads for at most this long, and the call has changed nothing. `refusal`: why the state
    of the instance does not allow the call.
    """

    settings: str = ""
    version: int = 0
    topics: tuple[str, ...] = ()
    positions: tuple[Position, ...] = ()
    busy_ms: int = 0
    refusal: str = ""
    is_new: bool = False
