"""A partition as a list: the simple twin of the real one, and the state machine that compares the two.

The real partition, log, committer, recovery and data directory run over the recording disk, with a manual clock and
without threads, so a run is a function of its steps. A record's offset is its index in the list. The twin has three
more numbers: a power loss keeps everything below `durable`, a kill everything below `written`, and reads below
`log_start` fail. After the end of any life the next one must find a prefix of the list, each record once.
"""

import asyncio
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.errors import EngineError, OffsetBelowLogStart
from engine.format import batch as record_batch
from engine.format.batch import Row
from engine.producers.appends import Appended
from engine.testing.recording_disk import RecordingDisk
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import inline_node

MINUTE_MS = 60_000
RETENTION_MS = 60 * MINUTE_MS
FOR_EVER_MS = 60 * MINUTE_MS  # flushes run only as a step of a rule
CONFIG = {"segment_bytes": 65536, "flush_ms": FOR_EVER_MS, "retention_ms": RETENTION_MS, "segment_ms": 30 * 86_400_000}
SIZES = st.sampled_from((20, 20, 300, 5000, 20_000))
BATCHES = st.lists(st.tuples(st.integers(1, 3), SIZES), min_size=1, max_size=4)
ACKS = st.sampled_from((Acks.ALL, Acks.ALL, Acks.LEADER, Acks.NONE))
OPERATIONS = st.integers(1, 12)  # until the power loss


class PartitionAndTwin(RuleBasedStateMachine):
    """Every rule does the same to both."""

    @initialize(durability=st.sampled_from(("group", "os")))
    def begin(self, durability):
        self.records: list[bytes] = []
        self.appended_ms: list[int] = []
        self.durable = self.written = self.log_start = self.log_start_tried = 0
        self.deleted = 0  # by request, not by age
        self.durability = durability
        self.values = Random(1)
        self.clock = HandClock()
        self.disk = RecordingDisk(self.clock)
        self.loop = asyncio.new_event_loop()
        self._open()
        self._do(self.node.shard.create_topic("t", 1, 1, {**CONFIG, "durability": durability}))
        self._settle()

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self._leave()
            self.loop.close()

    # Actions of clients and of the node.

    @rule(batches=BATCHES, acks=ACKS)
    def append(self, batches, acks):
        self._append(batches, acks)
        self._settle()

    @rule()
    def roll(self):
        assert self._do(self.node.shard.roll_topic("t")) == [len(self.records)]
        self._settle()
        self.durable = self.written = len(self.records)

    @rule()
    def flush(self):
        self.node.shard.committer.include(self.partition, sync=True)
        self._settle()
        self.durable = len(self.records)

    @rule()
    def checkpoint(self):
        self.node.checkpoint()

    @rule(passed_ms=st.sampled_from((MINUTE_MS, RETENTION_MS // 2, 2 * RETENTION_MS)))
    def expire(self, passed_ms):
        self.clock.pass_ms(passed_ms)
        self.log_start_tried = len(self.records)
        self._do(self.node.expire(self.partition))
        self._started_at(self.partition.log.log_start)
        gone = self.appended_ms[: self.log_start]
        assert all(self.clock.ms - ms > RETENTION_MS for ms in gone[self.deleted :]), "deleted before its time"

    @rule()
    def expire_everything(self):
        self.roll()
        self.expire(2 * RETENTION_MS)
        assert self.log_start == len(self.records), "sealed, old and still there"

    @rule(share=st.floats(0, 1))
    def delete_before(self, share):
        self._delete_before(share)

    @rule(share=st.floats(0, 1), max_bytes=st.sampled_from((1, 6000, 1 << 20)))
    def read(self, share, max_bytes):
        offset = int(share * len(self.records))
        try:
            self.partition.check_readable(min(offset, self.partition.high_watermark))
        except OffsetBelowLogStart:
            assert offset < self.log_start
            return
        chunk = self._do(self.node.shard.reader.read(self.partition, offset, max_bytes))
        if chunk is None:
            assert offset >= self.partition.high_watermark
        else:
            found = [record for record in decoded(bytes(chunk.data)) if record.offset >= offset]
            assert [record.value for record in found] == self.records[offset : chunk.next_offset]

    # Ends of a life.

    @rule()
    def stop(self):
        self._leave(cleanly=True)
        self.durable = self.written = len(self.records)
        self._reopen(self.disk.snapshot(), at_least=len(self.records))

    @rule()
    def kill(self):
        self._leave()
        self._reopen(self.disk.snapshot(), at_least=self.written)

    @rule(seed=st.integers(0, 99))
    def lose_power(self, seed):
        self._lose_power(seed)

    @rule(after=OPERATIONS, batches=BATCHES, acks=ACKS, seed=st.integers(0, 99))
    def lose_power_while_appending(self, after, batches, acks, seed):
        self._until_power_is_lost(after, lambda: (self._append(batches, acks), self._settle()))
        self._lose_power(seed)

    @rule(after=OPERATIONS, seed=st.integers(0, 99))
    def lose_power_while_rolling(self, after, seed):
        self._until_power_is_lost(after, self.roll)
        self._lose_power(seed)

    @rule(after=OPERATIONS, seed=st.integers(0, 99))
    def lose_power_while_expiring(self, after, seed):
        self._until_power_is_lost(after, lambda: self.expire(2 * RETENTION_MS))
        self._lose_power(seed)

    @rule(after=OPERATIONS, seed=st.integers(0, 99), share=st.floats(0, 1))
    def lose_power_while_deleting(self, after, seed, share):
        self._until_power_is_lost(after, lambda: self._delete_before(share))
        self._lose_power(seed)

    @rule(after=OPERATIONS, seed=st.integers(0, 99))
    def lose_power_while_starting(self, after, seed):
        """Lose power during the recovery from a kill."""
        self._leave()
        self.disk = self.disk.snapshot()
        self._until_power_is_lost(after, self._open)
        self._lose_power(seed)

    @invariant()
    def positions_are_in_order(self):
        if hasattr(self, "node"):
            found = self.partition.statistics()
            assert found.log_start == self.log_start <= found.high_watermark <= found.log_end == len(self.records)
            assert self.durable <= found.durable_end <= found.log_end

    # Helpers.

    @property
    def partition(self):
        return self.node.shard.partition("t", 0)

    def _append(self, batches: list[tuple[int, int]], acks: Acks) -> None:
        async def all_at_once() -> list[object]:
            waits = []
            for count, size_bytes in batches:
                values = [self.values.randbytes(size_bytes) for _ in range(count)]
                data = record_batch.encode([Row(self.clock.ms, None, value, []) for value in values])
                appended = self.node.append(self.partition, data, acks)
                base = len(self.records)
                self.records += values
                self.appended_ms += [self.clock.ms] * count
                waits.append(self._acknowledged(appended, Appended(base, count), acks))
            return await asyncio.gather(*waits, return_exceptions=True)

        for failed in self._do(all_at_once()):
            if failed is not None:
                raise failed

    async def _acknowledged(self, appended: asyncio.Future[Appended], expected: Appended, acks: Acks) -> None:
        assert await self.node.acknowledged(self.partition, appended, acks) == expected
        self.written = max(self.written, expected.end)
        if acks is Acks.ALL and self.durability == "group":
            self.durable = max(self.durable, expected.end)

    def _delete_before(self, share: float) -> None:
        offset = int(share * self.partition.high_watermark)
        self.log_start_tried = max(self.log_start_tried, offset)
        self.deleted = max(self.deleted, offset)
        log_start = self._do(self.node.shard.delete_before(self.partition, offset))
        assert log_start == max(self.log_start, offset)
        self._settle()
        self._started_at(log_start)

    def _started_at(self, log_start: int) -> None:
        assert self.log_start <= log_start <= max(self.log_start_tried, self.log_start)
        self.log_start = self.log_start_tried = log_start
        self.durable = max(self.durable, log_start)  # no log ends before it starts
        self.written = max(self.written, self.durable)

    def _until_power_is_lost(self, after: int, steps) -> None:
        self.disk.lose_power_after(self.disk.operations + after)
        try:
            steps()
        except (EngineError, OSError):
            assert self.disk.has_lost_power

    def _lose_power(self, seed: int) -> None:
        self._leave()
        states = list(self.disk.crash_states(6, Random(seed)))
        self._reopen(states[seed % len(states)], at_least=self.durable)

    def _reopen(self, disk: RecordingDisk, at_least: int) -> None:
        """Start the next life; its state becomes the expected state."""
        self.disk = disk
        self._open()
        partition = self.partition
        assert partition.offline is None, partition.offline
        found = self._everything()
        log_start, log_end = partition.log.log_start, partition.log_end
        assert at_least <= log_end <= len(self.records), f"{log_end} of {len(self.records)}, promised {at_least}"
        assert found == list(enumerate(self.records[:log_end]))[log_start:]
        self._started_at(log_start)
        del self.records[log_end:], self.appended_ms[log_end:]
        self.durable = self.written = log_end

    def _everything(self) -> list[tuple[int, bytes]]:
        found, offset = [], self.partition.log.log_start
        while chunk := self._do(self.node.shard.reader.read(self.partition, offset, 1 << 20)):
            records = [record for record in decoded(bytes(chunk.data)) if record.offset >= offset]
            found += [(record.offset, record.value) for record in records]
            offset = chunk.next_offset
        return found

    def _open(self) -> None:
        self._life = inline_node(self.disk, self.clock)
        self._is_open = False
        self.node = self._do(self._life.__aenter__())
        self._is_open = True

    def _leave(self, *, cleanly: bool = False) -> None:
        """End this life; its pending work is lost."""
        if not self._is_open:
            return
        self._is_open = False
        if not cleanly:
            self.node.kill()
        try:
            self._do(self._life.__aexit__(None, None, None))
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))

    def _settle(self) -> None:
        self._do(self.node.idle())
        self.written = len(self.records)

    def _do(self, work):
        return self.loop.run_until_complete(work)


def decoded(data: bytes) -> list[record_batch.Record]:
    found: list[record_batch.Record] = []
    for position, header in record_batch.walk(data):
        assert record_batch.has_valid_crc(data, position, header)
        found += record_batch.decode_one(data[position : position + header.size_bytes], 1 << 30)
    return found
