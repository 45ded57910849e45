"""The expected content of a log: every batch that a crash test sent, in order, and the promised durable end.

It judges a reopened node. The log must be a prefix of what was sent, byte for byte, at least up to the promised end. It
must contain nothing else, and every way of reading must agree.
"""

from dataclasses import dataclass, field
from itertools import accumulate

from engine.format import batch as record_batch
from engine.partition.partition import Partition
from tests.engine.crash.inline_node import InlineNode


@dataclass
class Ledger:
    """One partition. After a power loss everything below `promised_end` must remain, after a kill everything below
    `written_end`.
    """

    topic: str
    number: int
    sent: list[bytes] = field(default_factory=list, repr=False)
    promised_end: int = 0
    written_end: int = 0
    log_start: int = 0
    log_start_tried: int = 0
    tiered_end: int = 0
    found_end: int = 0

    def promise(self, end: int) -> None:
        """Record that everything below was acknowledged as fsynced."""
        self.promised_end = max(self.promised_end, end)
        self.written_end = max(self.written_end, end)

    def note_written(self, end: int) -> None:
        """Record that everything below was acknowledged as written."""
        self.written_end = max(self.written_end, end)

    @property
    def sent_end(self) -> int:
        return sum(record_batch.read_header(data).record_count for data in self.sent)

    def batches(self) -> list[tuple[int, int, bytes]]:
        """Return (base offset, next offset, bytes as the leader stamps them) of everything sent."""
        ends = list(accumulate(record_batch.read_header(data).record_count for data in self.sent))
        found = []
        for base, end, data in zip([0, *ends], ends, self.sent, strict=False):
            stamped = bytearray(data)
            record_batch.stamp(stamped, base, 0)
            found.append((base, end, bytes(stamped)))
        return found

    async def check(self, node: InlineNode) -> bytes:
        """Judge the partition of a reopened node; return all the bytes found, so that two openings can be compared."""
        partition = node.shard.partition(self.topic, self.number)
        assert partition.offline is None, partition.offline
        log, self.found_end = partition.log, partition.log_end
        assert self.promised_end <= partition.log_end, f"lost: {partition.log_end} is below {self.promised_end}"
        assert partition.log_end == partition.durable_end == partition.high_watermark
        assert self.log_start <= log.log_start <= self.log_start_tried
        assert log.local_log_start <= max(self.tiered_end, log.log_start), "deleted here and not in the store"
        batches = [b for b in self.batches() if b[1] <= partition.log_end]
        expected = [b for b in batches if b[1] > log.local_log_start]
        assert partition.log_end == (expected[-1][1] if expected else log.local_log_start), "a batch was cut in two"
        data = await _read_from(node, partition, log.local_log_start)
        assert data == b"".join(b[2] for b in expected)
        unread = [b for b in batches if log.segments[0].base_offset <= b[0] and b[1] <= log.local_log_start]
        assert log.size_bytes == len(data) + sum(len(b[2]) for b in unread)
        await _check_single_reads(node, partition, expected)
        await _check_times(node, partition, data)
        return data

    def forget_lost(self, node: InlineNode) -> None:
        """Continue from the node's state, which is all durable now; offsets of lost records will be reused."""
        log_end = node.shard.partition(self.topic, self.number).log_end
        self.sent = [data for data, b in zip(self.sent, self.batches(), strict=True) if b[1] <= log_end]
        self.promised_end = self.written_end = log_end


async def _read_from(node: InlineNode, partition: Partition, offset: int) -> bytes:
    data = b""
    while chunk := await node.shard.reader.read(partition, offset, 10_000):
        data += chunk.data
        assert chunk.next_offset > offset
        offset = chunk.next_offset
    assert offset == partition.log_end
    return data


async def _check_single_reads(node: InlineNode, partition: Partition, expected: list[tuple[int, int, bytes]]) -> None:
    """Check that a read at any offset begins with the batch that holds it."""
    for base, end, data in expected:
        for offset in {max(base, partition.log.local_log_start), end - 1}:
            chunk = await node.shard.reader.read(partition, offset, 1)
            assert chunk is not None
            assert chunk.data.startswith(data), f"at {offset}"


async def _check_times(node: InlineNode, partition: Partition, data: bytes) -> None:
    """Check that the time index finds the same record as a scan of all records."""
    decoded = record_batch.decode(data)
    records = [(r.offset, r.timestamp) for r in decoded if r.offset >= partition.log.log_start]
    for time in sorted({timestamp for _, timestamp in records}):
        first = next(found for found in records if found[1] >= time)
        assert await node.shard.reader.first_at_or_after(partition, time) == first, f"time {time}"
