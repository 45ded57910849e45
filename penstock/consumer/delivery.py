"""The answer to a poll of a consumer group, decoded, and the positions that its records reach.

Pure. The records of a delivery come one partition after the other, and in log order within each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from penstock.errors import ProblemError
from penstock.records import Record
from penstock.transport.exchange import problem_from


class TopicPartition(NamedTuple):
    topic: str
    partition: int


_DELETED = frozenset({"unknown_topic", "topic_id_mismatch"})

Positions = dict[TopicPartition, int]
"""The next offset to read of each partition."""


class _Part(msgspec.Struct):
    topic: str
    partition: int
    next_offset: int = -1
    records: list[Record] = msgspec.field(default_factory=list)
    problem: dict[str, Any] | None = None


class Delivery(msgspec.Struct):
    """Holds one answer. The next poll commits it by its `token`."""

    member_epoch: int
    assigned: int  # how many partitions the member has
    token: str
    partitions: list[_Part]
    topic_ids: dict[str, str] = msgspec.field(default_factory=dict)  # of the assigned topics

    def records(self) -> list[Record]:
        """Returns all records; each has its topic and partition."""
        records = []
        for part in self.partitions:
            for record in part.records:
                record.topic = part.topic
                record.partition = part.partition
            records += part.records
        return records

    def slots(self) -> set[TopicPartition]:
        """Returns the partitions that the delivery has records of."""
        return {TopicPartition(part.topic, part.partition) for part in self.partitions if part.records}

    def positions(self, count: int) -> Positions:
        """Returns the positions after the first `count` records, of the partitions that these are from."""
        positions: Positions = {}
        for part in self.partitions:
            taken = min(count, len(part.records))
            if taken:
                is_complete = taken == len(part.records)
                after = part.next_offset if is_complete else part.records[taken - 1].next_offset
                positions[TopicPartition(part.topic, part.partition)] = after
            count -= taken
        return positions

    def deleted_topics(self) -> set[str]:
        """Returns the topics that were deleted while the member had their partitions."""
        return {part.topic for part in self.partitions if part.problem and part.problem["code"] in _DELETED}

    def problem(self) -> ProblemError | None:
        """Returns the problem of a partition, one that does not pass by itself if there is one.

        None for a deleted topic: the coordinator takes its partitions away.
        """
        deleted = self.deleted_topics()
        failed = [part.problem for part in self.partitions if part.problem and part.topic not in deleted]
        problems = [problem_from(problem, problem["status"], {}) for problem in failed]
        return min(problems, key=lambda problem: problem.retryable, default=None)


_decode = msgspec.json.Decoder(Delivery).decode


def decode_delivery(body: bytes) -> Delivery:
    """Decodes the answer to a poll. Raises ValueError if it is not one."""
    return _decode(body)
