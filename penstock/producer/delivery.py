"""What became of one record: something to await that costs two references per record, not a future.

All records of a batch share its event; a record's position follows from its rank in the batch.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from penstock.producer.batch import Batch


class RecordPosition(NamedTuple):
    """Where a record was stored. With acks=0 the node says nothing, so offset is None."""

    topic: str
    partition: int
    offset: int | None
    timestamp: int | None


class Delivery:
    """Await it for the RecordPosition; a failed record raises its ClientError. May be awaited again, or never."""

    __slots__ = ("_rank", "batch")

    def __init__(self, batch: Batch, rank: int) -> None:
        self.batch = batch
        self._rank = rank

    def __await__(self) -> Generator[Any, None, RecordPosition]:
        self._follow_splits()
        while not self.batch.is_settled:
            yield from self.batch.settled.wait().__await__()
            self._follow_splits()
        return self.result()

    def __repr__(self) -> str:
        return f"<Delivery {self._rank} of {self.batch!r}>"

    def done(self) -> bool:
        self._follow_splits()
        return self.batch.is_settled

    def result(self) -> RecordPosition:
        """The position, at once. Raises InvalidStateError (of asyncio) before the record is done."""
        self._follow_splits()
        return position_in(self.batch, self._rank)

    def _follow_splits(self) -> None:
        while self.batch.parts:
            self.batch, self._rank = self.batch.part_of(self._rank)


def position_in(batch: Batch, rank: int) -> RecordPosition:
    """Of the record of this rank. Raises the batch's ClientError, or InvalidStateError before it is settled."""
    placed = batch.outcome()
    offset = None if placed.base_offset is None else placed.base_offset + rank
    return RecordPosition(batch.topic, batch.partition, offset, placed.timestamp)
