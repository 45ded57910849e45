"""A compacted partition and its twin: the records that were written, and what every reader must find of them."""

from random import Random

from engine.compaction.compactor import Compactor
from engine.compaction.swapping import OwnPartition, SegmentSwapper
from engine.format import batch as record_batch
from engine.format.batch import Codec, Record
from engine.runtime.disk import Disk
from engine.runtime.throttled_thread import ThrottledThread
from replication.replica.acks import Acks
from tests.engine.crash.inline_node import InlineExecutor, InlineNode

SETTINGS = {
    "cleanup_policy": "compact",
    "segment_bytes": 65536,
    "min_cleanable_dirty_percent": 1,
    "delete_retention_ms": 1000,
}
Sent = tuple[bytes, bytes | None]  # key and value


class Table:
    """The records of partition t/0, by offset. Sends, compacts and judges."""

    def __init__(self, memory_bytes: int = 1 << 20) -> None:
        self.sent: dict[int, Sent] = {}
        self.sent_ms: dict[int, int] = {}
        self.acknowledged_end = 0
        self.memory_bytes = memory_bytes

    async def send(self, node: InlineNode, records: list[Sent], codec: Codec = Codec.NONE) -> None:
        """Send one batch. It counts as sent before it is acknowledged."""
        partition = node.shard.partition("t", 0)
        begin = partition.log_end
        self.sent |= {begin + at: record for at, record in enumerate(records)}
        self.sent_ms |= dict.fromkeys(range(begin, begin + len(records)), node.clock.steady_ms())
        rows = [(5 + at, key, value, []) for at, (key, value) in enumerate(records)]
        appended = node.append(partition, record_batch.encode(rows, codec), Acks.ALL)
        self.acknowledged_end = (await node.acknowledged(partition, appended, Acks.ALL)).end
        assert self.acknowledged_end == begin + len(records)

    async def seal(self, node: InlineNode) -> None:
        await node.shard.roll_topic("t")
        await node.idle()

    async def compact(self, node: InlineNode, disk: Disk) -> SegmentSwapper:
        swapper = SegmentSwapper(disk, InlineExecutor(), node.clock)
        own = OwnPartition(node.shard.partition("t", 0), swapper)
        compactor = Compactor(
            disk,
            lambda: [own],
            ThrottledThread("compact", 1 << 60, InlineExecutor()),
            memory_bytes=self.memory_bytes,
            check_ms=1000,
            random_bytes=Random(1).randbytes,
        )
        while await compactor.compact(own):
            pass
        return swapper

    async def read(self, node: InlineNode, offset: int = 0) -> list[Record]:
        partition = node.shard.partition("t", 0)
        found: list[Record] = []
        while chunk := await node.shard.reader.read(partition, offset, 3000):
            assert chunk.next_offset > offset
            found += [one for one in record_batch.decode(chunk.data) if one.offset >= offset]
            offset = chunk.next_offset
        assert offset == partition.high_watermark
        return found

    async def check(self, node: InlineNode) -> list[Record]:
        """Every record that is found is one that was sent, in order; the last of each key is there."""
        found = await self.read(node)
        end = node.shard.partition("t", 0).log_end
        assert end >= self.acknowledged_end
        offsets = [one.offset for one in found]
        assert offsets == sorted(set(offsets))
        assert all(self.sent[one.offset] == (one.key, one.value) for one in found)
        last = {key: offset for offset, (key, _) in self.sent.items() if offset < end}
        fresh_ms = node.clock.steady_ms() - int(str(SETTINGS["delete_retention_ms"]))
        for offset in last.values():
            is_seen_by_all = self.sent[offset][1] is None and self.sent_ms[offset] <= fresh_ms
            assert offset in offsets or is_seen_by_all, "a last record, or a tombstone within its retention, has gone"
        assert fold((one.key, one.value) for one in found) == fold(
            record for offset, record in self.sent.items() if offset < end
        )
        return found


def fold(records) -> dict[bytes, bytes]:
    """Return the table that a log describes: the last value of each key."""
    table: dict[bytes, bytes] = {}
    for key, value in records:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


def some_records(random: Random, keys: int, count: int) -> list[Sent]:
    return [
        (
            f"k{random.randrange(keys)}".encode(),
            None if random.random() < 0.2 else random.randbytes(random.choice([0, 8, 300])),
        )
        for _ in range(count)
    ]
