"""What was written to the topics of one name, in the order of their creation, and what each consumer got of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Written(NamedTuple):
    """An acknowledged record. Its value names the topic that it was meant for. `is_settled`: the topic was deleted only
    after every consumer had had its time to read it.
    """

    topic_id: str
    partition: int
    offset: int
    value: str
    is_settled: bool


class Delivered(NamedTuple):
    """A record that a consumer got. `topic_id`: what the answer says of its topic, "" if it says nothing."""

    topic_id: str
    partition: int
    offset: int
    value: str


class Noticed(NamedTuple):
    """A consumer was notified that the topic is another one now, or began without any position."""

    topic_id: str


@dataclass
class Consumed:
    """The events of one consumer in their order. `is_ordered`: it gets the records of a partition in their order.

    `is_notified`: it keeps its position itself, so it must be notified of another topic before the first record of it.
    `partition`: the one that it reads, None for all.
    """

    name: str
    is_ordered: bool = True
    is_notified: bool = False
    partition: int | None = None
    events: list[Delivered | Noticed] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # final refusals of a position

    def take(self, topic_id: str, partition: int, offset: int, value: str) -> None:
        self.events.append(Delivered(topic_id, partition, offset, value))

    def notice(self, topic_id: str) -> None:
        self.events.append(Noticed(topic_id))

    @property
    def values(self) -> set[str]:
        return {event.value for event in self.events if isinstance(event, Delivered)}


@dataclass
class Recreations:
    """`topic_ids`: of the topics of the name, oldest first. `read`: each topic as a new reader found it before its
    deletion, or at the end.
    """

    topic: str
    topic_ids: list[str] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    consumers: list[Consumed] = field(default_factory=list)
    read: list[Delivered] = field(default_factory=list)

    def settled(self, partition: int | None = None) -> set[str]:
        """Return the values that a reader of this partition is to get, or of all."""
        return {write.value for write in self.written if write.is_settled and partition in (None, write.partition)}


def value_of(topic_id: str, partition: int, number: int) -> str:
    return f"{topic_id}/{partition}/{number}"


def topic_id_in(value: str) -> str:
    """Return the id of the topic that the value was meant for."""
    return value.partition("/")[0]
