"""What happened to compacted partitions: the evidence for the judge of tables.

The ledger has each record at the moment at which it was first committed, before any compaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

from engine.format import batch as record_batch
from engine.format.batch import read_header
from tests.checking.history import Produced

_BATCHES_KEPT = 4096


class Row(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    timestamp: int


@dataclass
class Put(Produced):
    """One produce of records with keys."""

    rows: tuple[tuple[bytes, bytes | None], ...] = ()


class Swap(Protocol):
    """A replica has replaced some segments by a compacted one."""

    partition: str
    node_id: int
    began: float
    ended: float
    before: bytes
    after: bytes


class Extent(NamedTuple):
    """The offsets that one batch takes."""

    begin: int
    end: int


@dataclass(frozen=True)
class Step:
    """One answer to a reader, with at least one batch."""

    asked_at: float
    at: float
    node_id: int
    asked: int
    batches: tuple[Extent, ...]
    rows: tuple[Row, ...]
    high_watermark: int


class Removal(NamedTuple):
    """A record that a replica has removed between two times."""

    partition: str
    node_id: int
    row: Row
    began: float
    ended: float


@dataclass
class Reading:
    """A pass of a reader, from an offset on."""

    client: str
    partition: str
    begin: int
    steps: list[Step] = field(default_factory=list)

    @property
    def position(self) -> int:
        return self.steps[-1].batches[-1].end if self.steps else self.begin


@dataclass
class TableHistory:
    delete_retention_s: float
    has_moves: bool = False  # a node that left may come back with its old log, which the product deletes
    ledger: dict[str, dict[int, Row]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)  # of the ledger
    readings: list[Reading] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    begun_again: list[tuple[float, int, str]] = field(default_factory=list)  # time, node, partition or all: a new log

    def note_swap(self, swap: Swap) -> None:
        """Note the records that a swap has removed."""
        left = {row.offset for row in rows_of(swap.after)}
        gone = [row for row in rows_of(swap.before) if row.offset not in left]
        self.removals += [Removal(swap.partition, swap.node_id, row, swap.began, swap.ended) for row in gone]

    def commit(self, partition: str, data: bytes, end: int) -> None:
        """Add the newly committed records of a leader's log."""
        begin = self.ends.get(partition, 0)
        rows = self.ledger.setdefault(partition, {})
        rows.update({row.offset: row for row in rows_of(data) if begin <= row.offset < end})
        self.ends[partition] = max(begin, end)

    def is_one_log(self, partition: str, node_id: int, begin: float, end: float) -> bool:
        """True if the replica on a node had the same log all that time."""
        return not any(
            node == node_id and begin <= at <= end and name in ("", partition) for at, node, name in self.begun_again
        )


def headers_of(data: bytes) -> tuple[Extent, ...]:
    return tuple(Extent(header.base_offset, header.next_offset) for _, header in record_batch.walk(data))


def rows_of(data: bytes) -> list[Row]:
    """Return the records of whole batches."""
    batches = (bytes(data[at : at + header.size_bytes]) for at, header in record_batch.walk(data))
    return [row for batch in batches for row in _rows_of_batch(batch)]


@lru_cache(_BATCHES_KEPT)
def _rows_of_batch(batch: bytes) -> list[Row]:
    if read_header(batch).record_count == 0:
        return []
    return [
        Row(
            record.offset,
            bytes(record.key or b""),
            None if record.value is None else bytes(record.value),
            record.timestamp,
        )
        for record in record_batch.decode_one(batch)
    ]
