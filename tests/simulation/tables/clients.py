"""Producers of keys and tombstones, and readers that build the table of a partition.

A reader begins at offset 0 and reads at any replica, whichever answers. At the end of the log it rests and goes on, or
begins again with an empty table.
"""

from __future__ import annotations

from typing import Any

from engine.format import batch as record_batch
from tests.checking.history import Produced
from tests.checking.table_history import Put, Reading, Step, TableHistory, headers_of, rows_of
from tests.simulation.clients import TIMEOUT_S, Client, Producer, SequencedProducer

TIME_MS = 1_700_000_000_000
TOMBSTONES = 0.25  # of the records
KEYS_PER_S = 3  # new ones: others are written no more, so that tombstones are last records all over the log


class _Keys:
    """Makes the batches of a producer of keys."""

    keys = 8  # that are written at a time

    def made(self: Any, partition: str, count: int, acks: str) -> Produced:
        random, newest = self.world.random, self.keys + int(KEYS_PER_S * self.world.now)
        rows = tuple(
            (
                b"k%d" % random.randrange(0 if random.random() < 0.05 else newest - self.keys, newest),
                None if random.random() < TOMBSTONES else f"{self.name}-{self._number}.{i}".encode(),
            )
            for i in range(count)
        )
        values = tuple(f"{key!r}={value!r}" for key, value in rows)
        return Put(self.name, partition, values, acks, self.world.now, rows=rows)

    def batch_of(self, produced: Produced) -> bytearray:
        assert isinstance(produced, Put)
        return record_batch.encode([(TIME_MS, key, value, []) for key, value in produced.rows])


class KeyProducer(_Keys, Producer):
    pass


class SequencedKeyProducer(_Keys, SequencedProducer):
    pass


class TableReader(Client):
    """Reads a partition from its beginning, again and again. `node_id`: at this replica only, and once.

    `moves`: the share of answers after which it goes on at any replica.
    """

    def __init__(
        self,
        *args: Any,
        partition: str,
        every_s: float,
        tables: TableHistory,
        moves: float = 0.0,
        node_id: int = 0,
    ) -> None:
        super().__init__(*args)
        self.partition, self._every_s, self._tables, self._only = partition, every_s, tables, node_id
        self._moves = moves
        self._node: int | None = None
        self._asked = 0
        self.reading = self._begun(0)

    @property
    def position(self) -> int:
        return self.reading.position

    def run(self) -> None:
        self._asked += 1
        if self.is_stopped:
            return
        node = self._only or self._node or self.any_node()
        about = node, self._asked, self.world.now
        self.call(node, "on_read", self.partition, self.position, lambda *a: self._on_answer(*about, *a))
        self.world.after(TIMEOUT_S, self._give_up, self._asked)

    def _on_answer(self, node: int, number: int, asked_at: float, what: str, data: bytes, *positions: int) -> None:
        log_start, watermark, _ = positions
        if number != self._asked:
            return
        self._asked += 1  # the network may repeat the answer
        random = self.world.random
        self._node = node if what == "ok" and random.random() >= self._moves else None
        if what == "below":  # records were deleted: a reader of the table begins again
            self.reading = self._begun(log_start)
        elif what == "ok":
            self._take(node, asked_at, data, watermark)
            is_at_end = self.position >= watermark
            if is_at_end and not self._only and random.random() < 0.5:
                self.reading = self._begun(0)
        self.world.after(self._every_s * random.random(), self.run)

    def _take(self, node: int, asked_at: float, data: bytes, watermark: int) -> None:
        reading, asked = self.reading, self.position
        headers = headers_of(data)
        if not headers:
            return
        rows = tuple(row for row in rows_of(data) if row.offset >= asked)
        if reading.steps and reading.steps[-1].node_id != node:
            self.world.count("reads that go on at another replica")
        self.world.counts["records read of tables"] += len(rows)
        reading.steps.append(Step(asked_at, self.world.now, node, asked, headers, rows, watermark))

    def _begun(self, offset: int) -> Reading:
        reading = Reading(self.name, self.partition, offset)
        self._tables.readings.append(reading)
        return reading

    def _give_up(self, number: int) -> None:
        if number == self._asked:
            self._node = None
            self.run()
