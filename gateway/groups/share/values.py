"""The values that calls of a share group take and return. Frozen; links carry them in array form."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

Slot = tuple[str, int]  # topic and partition


class Outcome(IntEnum):
    """The outcome of records that a lock holds. The last two come from nodes, not from callers."""

    ACCEPT = 0  # done
    RELEASE = 1  # available for another delivery, after a delay
    REJECT = 2  # never delivered again: a dead letter
    EXTEND = 3  # locked for longer
    RETURN = 4  # not delivered after all: available at once, and the delivery does not count
    ABSENT = 5  # no record has this offset


class Bound(NamedTuple):
    """The committed part of a partition's log."""

    topic: str
    topic_id: str
    partition: int
    log_start: int
    high_watermark: int


class KeyRun(NamedTuple):
    """The records of a partition from `first` up to `end`: their offsets, and a hash of each key; 0: no key."""

    topic: str
    partition: int
    first: int
    end: int
    offsets: list[int]
    hashes: list[int]


class AcquireCall(Struct, frozen=True, array_like=True):
    """Fills a lock with records, up to `max_records`. A repeat with the same lock returns what it holds already."""

    group: str
    lock: str
    topics: tuple[str, ...]
    bounds: tuple[Bound, ...]
    max_records: int
    lock_ms: int | None = None
    member_id: str = ""
    keys: tuple[KeyRun, ...] = ()


class Granted(NamedTuple):
    """Records that a lock holds: their range, and the number of this delivery."""

    topic: str
    topic_id: str
    partition: int
    first: int
    last: int
    deliveries: int


class Place(NamedTuple):
    """The next offset of a partition that the group has not looked at. `limit`: where its window is full."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    limit: int


class Acquired(Struct, frozen=True, array_like=True):
    """The records of a lock. Without any: where to wait, and after which time something may be available.

    `keys_to_learn`: partitions whose keys have to be read before more records of theirs can be handed out.
    """

    granted: tuple[Granted, ...]
    lock_ms: int
    places: tuple[Place, ...] = ()
    keys_to_learn: tuple[Place, ...] = ()
    due_ms: int | None = None
    version: int = 0
    resets: int = 0
    hosting: int = 0


class Settlement(NamedTuple):
    """An outcome of a range of records. `time_ms`: the delay of a release, the new lock time of an extension."""

    topic: str
    partition: int
    first: int
    last: int
    outcome: int
    time_ms: int | None = None
    error: str = ""


class SettleCall(Struct, frozen=True, array_like=True):
    """Settles records of a lock. An empty list with an `outcome` means all that the lock still holds.

    `checked`: the topics that the caller may read; records of others are not settled. None: all. With a `member_id` in
    place of the lock it is about the records of all locks of this caller.
    """

    group: str
    lock: str
    settlements: tuple[Settlement, ...]
    outcome: int | None = None
    time_ms: int | None = None
    error: str = ""
    checked: tuple[str, ...] | None = None
    member_id: str = ""

    @property
    def outcomes(self) -> set[int]:
        return {self.outcome} if self.outcome is not None else {settlement.outcome for settlement in self.settlements}


class Refused(NamedTuple):
    """Records of a settlement that the lock does not hold. `is_settled`: they have another outcome already."""

    topic: str
    partition: int
    first: int
    last: int
    is_settled: bool


class Settled(Struct, frozen=True, array_like=True):
    """The number of records that have their outcome, and those that do not.

    `unchecked`: the lock has records of these topics, which the call does not name as checked; nothing is settled.
    """

    settled: int
    refused: tuple[Refused, ...] = ()
    unchecked: tuple[str, ...] = ()


class ShortenCall(Struct, frozen=True, array_like=True):
    """A log ends below what the group has looked at: an unclean election. The records above the end are new ones."""

    group: str
    topic: str
    partition: int
    high_watermark: int
    resets: int


class DeadLetter(Struct, frozen=True, array_like=True):
    """Records that wait to be copied to the dead-letter topic."""

    group: str
    dead_letter_topic: str
    topic: str
    topic_id: str
    partition: int
    first: int
    last: int
    deliveries: int
    reason: str
    error: str


class ShareView(Struct, frozen=True, array_like=True):
    """A partition of a share group, for people."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    in_flight: int
    available: int
    delayed: int
    done: int
    dead_letters_pending: int
    dead_letters: int
    dropped: int


class HolderView(Struct, frozen=True, array_like=True):
    """A caller that holds records, for people."""

    member_id: str
    in_flight: int
    lock_left_ms: int
