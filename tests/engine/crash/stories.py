"""What happens to the node before the power goes: fixed stories and random ones.

A story is one or more lives; each starts the node, does its steps through the `Teller` and stops the node cleanly.
The teller keeps the ledgers, so that at any moment the test knows what was sent and what was promised.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from random import Random

from engine import batch
from engine.batch import Row
from engine.partition import Partition
from engine.recorded_file import PAGE_BYTES
from engine.recording_disk import RecordingDisk
from replication.acks import Acks
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import InlineNode, inline_node
from tests.engine.crash.ledger import Ledger

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ALL, LEADER = Acks.ALL, Acks.LEADER
NEVER_FLUSHED = {"flush_ms": HOUR_MS, "segment_bytes": 65536}
TIMES = (0, 5, 3, 9, 7)  # out of order, so that a lookup by time has something to do


class Teller:
    """Does the steps of a story on a node and keeps account of them."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.clock = HandClock()
        self.ledgers: dict[tuple[str, int], Ledger] = {}
        self.created: set[str] = set()
        self.node: InlineNode | None = None
        self.is_page_sized = False
        self._batches = 0

    def fork(self) -> Teller:
        """Another teller who has seen the same so far."""
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
        if not self.node.is_killed:
            self._note_stopped()

    async def create(self, topic: str, partitions: int, **config: object) -> None:
        for number in range(partitions):
            self.ledgers.setdefault((topic, number), Ledger(topic, number))
        await self.node.shard.create_topic(topic, partitions, 1, {**NEVER_FLUSHED, **config})
        self.created.add(topic)

    async def append(self, topic: str, *sends: tuple[int, int, Acks]) -> None:
        """Append batches, each (partition, bytes of payload, acks), all in one group; wait for all their acks."""
        waits = []
        for number, size_bytes, acks in sends:
            ledger, partition = self.ledgers[topic, number], self.node.shard.partition(topic, number)
            data = self._batch(size_bytes)
            appended = self.node.append(partition, data, acks)
            ledger.sent.append(bytes(data))
            waits.append((ledger, partition, appended, batch.read_header(data).record_count, acks))
        results = await asyncio.gather(*(self._acknowledged(*wait) for wait in waits), return_exceptions=True)
        for error in results:
            if error is not None:
                raise error

    async def _acknowledged(
        self, ledger: Ledger, partition: Partition, appended: asyncio.Future[int], count: int, acks: Acks
    ) -> None:
        end = await self.node.acknowledged(partition, appended, count, acks) + count
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
        """Delete what the settings say is too old. What is deleted only here has been stored up to `tiered_end`."""
        partition, ledger = self.node.shard.partition(topic, number), self.ledgers[topic, number]
        ledger.tiered_end = max(ledger.tiered_end, tiered_end or 0)
        ledger.log_start_tried = partition.log_end
        await self.node.expire(partition, tiered_end)
        ledger.log_start = ledger.log_start_tried = partition.log.log_start

    def _batch(self, size_bytes: int) -> bytearray:
        """A few records of random bytes; no two batches alike."""
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
        """durable_end is a promise too, whoever waits for it."""
        for (topic, number), ledger in self.ledgers.items():
            if topic in self.node.shard.topics:
                ledger.promise(self.node.shard.partition(topic, number).durable_end)

    def _note_stopped(self) -> None:
        """A clean stop promises everything."""
        for ledger in self.ledgers.values():
            ledger.promise(ledger.sent_end)

    async def open(self, disk: RecordingDisk) -> None:
        """Let recovery do its work, and leave as a killed process does."""
        async with inline_node(disk, self.clock) as node:
            node.kill()

    async def check(self, disk: RecordingDisk, *, go_on: bool = False) -> dict[tuple[str, int], bytes]:
        """Open a disk with the real recovery, judge what is found, and leave as a killed process does.

        To `go_on` is to take what was found for the truth: everything of it is promised from now on.
        """
        async with inline_node(disk, self.clock) as node:
            assert self.created <= node.shard.topics.keys()
            ledgers = {key: one for key, one in self.ledgers.items() if one.topic in node.shard.topics}
            found = {key: await ledger.check(node) for key, ledger in ledgers.items()}
            for ledger in ledgers.values() if go_on else ():
                ledger.forget_lost(node)
            node.kill()
            return found


async def appends(teller: Teller) -> None:
    """Groups with and without sync, small and large, in two partitions."""
    await teller.create("t", 2)
    await teller.append("t", (0, 50, ALL))
    await teller.append("t", (0, 50, LEADER))
    await teller.append("t", (0, 5000, LEADER), (1, 50, LEADER))
    await teller.append("t", (1, 50, ALL))
    await teller.append("t", (0, 9000, LEADER), (0, 50, ALL), (1, 50, LEADER))
    teller.checkpoint()
    await teller.append("t", (0, 50, LEADER))
    await teller.append("t", (0, 50, LEADER))


async def rolls(teller: Teller) -> None:
    """Segments sealed on demand and by size, synced and not, with recovery points behind them."""
    await teller.create("t", 1)
    await teller.append("t", (0, 300, LEADER))
    await teller.roll("t")
    await teller.append("t", (0, 300, ALL), (0, 6000, LEADER))
    teller.checkpoint()
    await teller.append("t", *[(0, 15_000, LEADER)] * 6)
    await teller.append("t", (0, 50, LEADER))
    await teller.append("t", (0, 50, ALL))
    await teller.roll("t")
    teller.checkpoint()
    await teller.append("t", (0, 50, LEADER))


async def expiry(teller: Teller) -> None:
    """Segments deleted here once they are in the store, then deleted everywhere."""
    await teller.create("t", 1, local_retention_bytes=0, retention_ms=HOUR_MS)
    for _ in range(4):
        await teller.append("t", (0, 300, ALL))
        await teller.roll("t")
    await teller.expire("t", 0, tiered_end=teller.ledgers["t", 0].promised_end)
    await teller.append("t", (0, 50, ALL))
    for _ in range(3):
        await teller.roll("t")
        await teller.append("t", (0, 50, ALL))
    teller.clock.pass_ms(2 * HOUR_MS)
    await teller.append("t", (0, 50, LEADER))
    await teller.expire("t", 0)
    await teller.append("t", (0, 50, ALL))


async def unsynced_expiry(teller: Teller) -> None:
    """durability=os: what is old enough to be deleted was perhaps never synced, nor was what followed it."""
    await teller.create("t", 1, durability="os", retention_ms=MINUTE_MS)
    await teller.append("t", *[(0, 15_000, ALL)] * 6)
    await teller.append("t", (0, 50, ALL))
    teller.clock.pass_ms(2 * MINUTE_MS)
    await teller.append("t", (0, 50, ALL))
    await teller.expire("t", 0)
    await teller.append("t", (0, 50, LEADER))
    await teller.roll("t")
    await teller.expire("t", 0)
    await teller.append("t", (0, 50, LEADER))


async def two_lives(teller: Teller) -> None:
    """What one run leaves is appended to by the next one; given twice."""
    if not teller.ledgers:
        await teller.create("t", 1)
    await teller.append("t", (0, 5000, LEADER), (0, 5000, LEADER))
    await teller.append("t", (0, 50, LEADER))
    await teller.roll("t")
    await teller.append("t", (0, 5000, LEADER))


async def whole_pages(teller: Teller) -> None:
    """Unsynced batches that fit exactly over those of a life before, so that stale ones behind them would pass."""
    teller.is_page_sized = True
    if "t" not in teller.node.shard.topics:
        await teller.create("t", 1)
    for _ in range(3):
        await teller.append("t", (0, 2 * PAGE_BYTES, LEADER))
    teller.node.kill()


async def more(teller: Teller) -> None:
    """For a life after a power loss, when not even the topic need be there."""
    for topic in sorted({topic for topic, _ in teller.ledgers} & teller.node.shard.topics.keys()):
        await teller.append(topic, (0, 50, ALL))
        await teller.append(topic, (0, 9000, LEADER), (0, 50, LEADER))
        await teller.roll(topic)
        teller.checkpoint()
        await teller.append(topic, (0, 50, LEADER))


async def random_steps(teller: Teller) -> None:
    """A dozen steps drawn from the teller's seed."""
    draw = teller.random
    if not teller.ledgers:
        await teller.create("t", 2)
    for _ in range(12):
        match draw.choice("aaaaarrcs"):
            case "a":
                sends = [(draw.randrange(2), draw.choice((50, 50, 3000, 9000)), draw.choice((ALL, LEADER, LEADER)))]
                await teller.append("t", *sends * draw.choice((1, 1, 2, 5)))
            case "r":
                await teller.roll("t")
            case "c":
                teller.checkpoint()
            case "s":
                await teller.append("t", (0, 20_000, LEADER), (0, 30_000, LEADER), (0, 30_000, LEADER))
