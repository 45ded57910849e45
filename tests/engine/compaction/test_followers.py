"""Followers of a leader whose log is compacted: batches join, wherever the follower's log ends."""

from itertools import pairwise

from engine.format.batch_header import walk
from engine.testing.recording_disk import RecordingDisk
from tests.engine.compaction.table import SETTINGS, Table
from tests.engine.conftest import HandClock
from tests.engine.crash.inline_node import inline_node


async def test_a_follower_continues_from_any_offset_where_a_batch_began_before_the_compaction():
    clock, table = HandClock(), Table()
    disk = RecordingDisk(clock)
    async with inline_node(disk, clock) as node:
        await node.shard.create_topic("t", 1, 1, SETTINGS)
        for at in range(6):
            await table.send(node, [(b"a", b"%d" % at), (b"b", b"%d" % at)])
        await table.seal(node)
        await table.compact(node, disk)
        partition = node.shard.partition("t", 0)
        for offset in range(0, 12, 2):
            chunk = await node.shard.reader.read_uncommitted(partition, offset, 1 << 20)
            headers = [header for _, header in walk(chunk.data)]
            assert headers[0].base_offset == offset
            assert all(a.next_offset == b.base_offset for a, b in pairwise(headers))
            assert headers[-1].next_offset == chunk.next_offset == 12
            assert node.shard.reader.read_uncommitted_nowait(partition, offset, 1 << 20) == chunk
