"""Does the steps of a story on a node and records what was sent and what was promised at each moment. The ledgers judge
the result.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from random import Random

from engine.format import batch
from engine.format.batch import Row
from engine.partition.partition import Partition
from engine.producers.appends import Appended
from engine.testing.recording_disk import RecordingDisk
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import InlineNode, inline_node
from tests.engine.crash.ledger import Ledger

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ALL, LEADER = Acks.ALL, Acks.LEADER
NEVER_FLUSHED = {"flush_ms": HOUR_MS, "segment_bytes": 65536}
TIMES = (0, 5, 3, 9, 7)  # out of order, so that the time index matters


class Teller:
    """Does the steps of a story on a node and records what was sent and promised."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.clock = HandClock()
        self.ledgers: dict[tuple[str, int], Ledger] = {}
        self.created: set[str] = set()
        self.node: InlineNode | None = None
        self.is_page_sized = False
        self.durability = "group"  # default for the topics of this story
        self._batches = 0

    def fork(self) -> Teller:
        """Return a copy of this teller with the same records."""
        node, self.node = self.node, None
        fork = copy.deepcopy(self)
        self.node = node
        return fork

    async def life(self, disk: RecordingDisk, steps: Callable[[Teller], Awaitable[None]]) -> None:
        """Start a node, do the steps, stop it cleanly."""
        async with inline_node(disk, self.clock) as self.node:
            try:
                await steps(self)
                await self.node.idle()
            finally:
                self._note_durable()
        if not self.node.is_killed and all(partition.offline is None for partition in self.node.shard.partitions()):
            self._note_stopped()

    async def create(self, topic: str, partitions: int, **config: object) -> None:
        for number in range(partitions):
            self.ledgers.setdefault((topic, number), Ledger(topic, number))
        await self.node.shard.create_topic(
            topic, partitions, 1, {"durability": self.durability, **NEVER_FLUSHED, **config}
        )
        self.created.add(topic)

    async def append(self, topic: str, *sends: tuple[int, int, Acks]) -> None:
        """Append batches, each (partition, bytes of payload, acks), in one group; wait for all their acks."""
        waits = []
        for number, size_bytes, acks in sends:
            ledger, partition = self.ledgers[topic, number], self.node.shard.partition(topic, number)
            data = self._batch(size_bytes)
            appended = self.node.append(partition, data, acks)
            ledger.sent.append(bytes(data))
            waits.append((ledger, partition, appended, acks))
        results = await asyncio.gather(*(self._acknowledged(*wait) for wait in waits), return_exceptions=True)
        for error in results:
            if error is not None:
                raise error

    async def _acknowledged(
        self, ledger: Ledger, partition: Partition, appended: asyncio.Future[Appended], acks: Acks
    ) -> None:
        end = (await self.node.acknowledged(partition, appended, acks)).end
        ledger.note_written(end)
        if acks is ALL and partition.settings.durability == "group":
            ledger.promise(end)

    async def roll(self, topic: str) -> None:
        for number, sealed_end in enumerate(await self.node.shard.roll_topic(topic)):
            self.ledgers[topic, number].promise(sealed_end)
        await self.node.idle()

    def checkpoint(self) -> None:
        self.node.checkpoint()

    async def expire(self, topic: str, number: int, tiered_end: int | None = None) -> None:
        """Expire records by the topic's settings. Records deleted only locally are in the store up to `tiered_end`."""
        partition, ledger = self.node.shard.partition(topic, number), self.ledgers[topic, number]
        ledger.tiered_end = max(ledger.tiered_end, tiered_end or 0)
        ledger.log_start_tried = partition.log_end
        await self.node.expire(partition, tiered_end)
        ledger.log_start = ledger.log_start_tried = partition.log.log_start

    async def delete_before(self, topic: str, number: int, offset: int) -> None:
        """Delete records below an offset on an operator's request, independent of age."""
        partition, ledger = self.node.shard.partition(topic, number), self.ledgers[topic, number]
        ledger.log_start_tried = max(ledger.log_start_tried, offset)
        ledger.log_start = await self.node.shard.delete_before(partition, offset)
        assert ledger.log_start >= offset
        ledger.promise(ledger.log_start)
        await self.node.idle()

    def _batch(self, size_bytes: int) -> bytearray:
        """Return a batch of a few records of random bytes; no two batches are equal."""
        self._batches += 1
        if self.is_page_sized:
            overhead_bytes = len(self._encoded(1, size_bytes - 100)) - (size_bytes - 100)
            return self._encoded(1, size_bytes - overhead_bytes)
        return self._encoded(1 + self._batches % 3, size_bytes)

    def _encoded(self, count: int, payload_bytes: int) -> bytearray:
        time = 1000 + 10 * self._batches
        values = [self.random.randbytes(payload_bytes // count) for _ in range(count)]
        return batch.encode([Row(time + self.random.choice(TIMES), None, value, []) for value in values])

    def _note_durable(self) -> None:
        """Record durable_end: it is a promise too, even if no producer waits for it."""
        for (topic, number), ledger in self.ledgers.items():
            if topic in self.node.shard.topics:
                ledger.promise(self.node.shard.partition(topic, number).durable_end)

    def _note_stopped(self) -> None:
        """Record that a clean stop promises everything."""
        for ledger in self.ledgers.values():
            ledger.promise(ledger.sent_end)

    async def open(self, disk: RecordingDisk) -> None:
        """Open with recovery, then leave as a killed process does."""
        async with inline_node(disk, self.clock) as node:
            node.kill()

    async def check(self, disk: RecordingDisk, *, go_on: bool = False) -> dict[tuple[str, int], bytes]:
        """Open a disk with the real recovery, judge the result, and leave as a killed process does.

        With `go_on` the state found becomes the promised state.
        """
        async with inline_node(disk, self.clock) as node:
            assert self.created <= node.shard.topics.keys()
            ledgers = {key: one for key, one in self.ledgers.items() if one.topic in node.shard.topics}
            found = {key: await ledger.check(node) for key, ledger in ledgers.items()}
            for ledger in ledgers.values() if go_on else ():
                ledger.forget_lost(node)
            node.kill()
            return found
