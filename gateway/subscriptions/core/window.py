"""The records of one partition that are on their way: which go next, which wait, and what may be committed.

A failed batch is repeated as it was, with the same records. Invariants: (1) with order `key`, records of a key are in
one batch at a time, and leave in the order of their offsets; with `partition`, all records do; (2) `committed` never
passes a record that is neither delivered nor given up; (3) nothing is to be added
while `records_max` records or `bytes_max` bytes are held.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from gateway.subscriptions.core.definition import Order

T = TypeVar("T")


class Item(NamedTuple, Generic[T]):
    """A record, and what the order of deliveries needs of it."""

    offset: int
    key: bytes | None
    size_bytes: int
    record: T


@dataclass(slots=True, eq=False)
class Batch(Generic[T]):
    """Records of one request. `attempts` counts those that failed."""

    items: list[Item[T]]
    attempts: int = 0


class _Waiting(NamedTuple):
    due_ms: int
    first_offset: int


class Window(Generic[T]):
    """The window of one partition. `next_offset` is where to read on."""

    def __init__(self, order: Order, next_offset: int, records_max: int, bytes_max: int) -> None:
        self.next_offset = next_offset
        self._order = order
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._failed = 0
        self._fresh: deque[Item[T]] = deque()  # in the order of their offsets; no batch has had them
        self._busy: set[Hashable] = set()  # keys of records in a batch
        self._unfinished: dict[int, None] = {}  # offsets of records in a batch
        self._waiting: list[tuple[_Waiting, Batch[T]]] = []

    def __repr__(self) -> str:
        return f"Window(fresh={len(self._fresh)}, unfinished={len(self._unfinished)}, next_offset={self.next_offset})"

    @property
    def has_room(self) -> bool:
        """Whether records may be added."""
        return len(self._fresh) + len(self._unfinished) < self._records_max and self._size_bytes < self._bytes_max

    @property
    def failed(self) -> int:
        """How many batches have failed and are not finished."""
        return self._failed

    @property
    def committed(self) -> int:
        """The offset below which everything is finished."""
        ends = [min(self._unfinished)] if self._unfinished else []
        ends += [self._fresh[0].offset] if self._fresh else []
        return min(ends, default=self.next_offset)

    @property
    def due_ms(self) -> int | None:
        """When the first failed batch is to be repeated; None: there is none."""
        return self._waiting[0][0].due_ms if self._waiting else None

    def add(self, records: Sequence[Item[T]], next_offset: int) -> None:
        """Adds records that were read up to `next_offset`."""
        self._fresh += records
        self._size_bytes += sum(record.size_bytes for record in records)
        self.next_offset = next_offset

    def take(self, now_ms: int, records_max: int) -> Batch[T] | None:
        """Returns the batch to send now: one that failed and is due, else fresh records; None: nothing may go."""
        if self._waiting and self._waiting[0][0].due_ms <= now_ms:
            return heapq.heappop(self._waiting)[1]
        records: list[Item[T]] = []
        held: list[Item[T]] = []
        skipped: set[Hashable] = set()
        while self._fresh and len(records) < records_max:
            record = self._fresh.popleft()
            lane = self._lane(record)
            if lane in self._busy or lane in skipped:
                held.append(record)
                skipped.add(lane)
                if self._order == "partition":
                    break
            else:
                records.append(record)
        self._fresh.extendleft(reversed(held))
        if not records:
            return None
        self._busy.update(self._lane(record) for record in records)
        self._unfinished |= dict.fromkeys(record.offset for record in records)
        return Batch(records)

    def finish(self, batch: Batch[T]) -> None:
        """Notes that a batch was delivered or given up."""
        self._failed -= batch.attempts > 0
        for record in batch.items:
            self._busy.discard(self._lane(record))
            del self._unfinished[record.offset]
            self._size_bytes -= record.size_bytes

    def fail(self, batch: Batch[T], due_ms: int) -> None:
        """Notes that a batch is to be sent at `due_ms` again."""
        self._failed += batch.attempts == 0
        batch.attempts += 1
        heapq.heappush(self._waiting, (_Waiting(due_ms, batch.items[0].offset), batch))

    def _lane(self, record: Item[T]) -> Hashable:
        """Returns what orders a record. A record without a key has no order but with `partition`."""
        if self._order == "partition":
            return None
        if self._order == "none" or record.key is None:
            return record.offset
        return record.key
