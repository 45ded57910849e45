"""The bounds of a partition, and the position of a time, at the partition's owner."""

from __future__ import annotations

from functools import partial
from typing import TypedDict

from engine.partition.partition import Partition
from gateway.fetch import event_stream
from gateway.fetch.context import FetchContext, ReadContext
from gateway.fetch.reader import find_time
from gateway.routing.partitions import other_topic
from gateway.routing.router import Answering, PartitionCall


class Positions(TypedDict):
    """The bounds of a partition and, for a time, the first record at or after it."""

    topic: str
    topic_id: str
    partition: int
    log_start: int
    log_end: int
    high_watermark: int
    offset: int | None
    timestamp: int | None


FIND_OFFSETS: PartitionCall[int | None, Positions] = PartitionCall("find_offsets", int | None)


async def find_offsets(context: ReadContext, partition: Partition, timestamp: int | None) -> tuple[Positions, bytes]:
    """Finds the bounds of a partition and, for a time, its first record. Raises NotLeader, OffsetNotAvailable."""
    context.partitions.replica(partition).check_latest()
    found = None if timestamp is None else await find_time(context, partition, timestamp)
    document: Positions = {
        "topic": partition.topic,
        "topic_id": context.partitions.topic_id(partition.topic, partition.number),
        "partition": partition.number,
        "log_start": partition.log.log_start,
        "log_end": partition.log_end,
        "high_watermark": partition.high_watermark,
        "offset": None if found is None else found[0],
        "timestamp": None if found is None else found[1],
    }
    return document, b""


async def check_topic(context: FetchContext, name: str, topic_id: str) -> None:
    """Checks that a topic is the one that a reader means. Raises UnknownTopic, OtherTopic, Problem."""
    if not await context.topics.confirm_id(name, lambda present: present == topic_id):
        raise other_topic(name, context.topics.topic(name).record.topic_id)


async def is_of_topic(context: FetchContext, name: str, positions: str) -> bool:
    """Returns whether positions are of the topic that now has the name. Raises UnknownTopic, Problem."""
    return await context.topics.confirm_id(name, partial(event_stream.is_of, positions))


def partition_calls(context: ReadContext) -> list[Answering]:
    """Returns the readers' calls to partitions of this process."""
    return [FIND_OFFSETS.by(partial(find_offsets, context))]
