"""A node in this process, under the limit of open files at its start: `python -m tests.scale.many_segments`.

Creates thousands of segments, reads, ships, scrubs, restarts and deletes. Prints as JSON what a test judges: the
greatest number of open files, and the records found. tests/scale/test_open_files.py starts it.
"""

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from engine.cleaning.quarantine import LocalPartition
from engine.cleaning.scrubber import Scrubber
from engine.format import batch
from engine.runtime.disk import RealDisk
from engine.shard.shard import Shard
from gateway.settings import NodeSettings
from node.node import Node
from node.processes.server import running_node
from node.setup.file_limit import within_file_limit
from replication.replica.acks import Acks

PRODUCE_MS = 60_000
PASS_S = 600
READERS = 16

most_files = 0


def look() -> int:
    global most_files
    count = len(os.listdir("/proc/self/fd"))
    most_files = max(most_files, count)
    return count


async def watch() -> None:
    while True:
        look()
        await asyncio.sleep(0.005)


async def produce(node: Node, segments: int) -> None:
    partition = node.shard.partition("t", 0)
    leader = node.replicas.by_partition[partition]
    for number in range(segments):
        await leader.produce(batch.encode_values([b"%d" % number], 5), Acks.ALL, PRODUCE_MS)
        await node.shard.committer.roll(partition)


async def read_all(node: Node, segments: int) -> int:
    """Return how many records are present and correct; several readers read at once, each in its own order."""
    partition = node.shard.partition("t", 0)
    right: set[int] = set()

    async def read(reader: int) -> None:
        offsets = list(range(reader, segments, READERS))
        random.Random(reader).shuffle(offsets)
        for offset in offsets:
            if offset < partition.log.local_log_start:
                chunk = await node.tier.read(partition, offset, 1)
            else:
                chunk = await node.shard.reader.read(partition, offset, 1)
            if [record.value for record in batch.decode(chunk.data)] == [b"%d" % offset]:
                right.add(offset)

    await asyncio.gather(*map(read, range(READERS)))
    return len(right)


async def shipped(node: Node, segments: int) -> int:
    partition = node.shard.partition("t", 0)
    async with asyncio.timeout(PASS_S):
        while (end := (await node.tier.statistics(partition)).tiered_end) < segments:
            await asyncio.sleep(0.05)
    return end


async def scrubbed(shard: Shard) -> int:
    """Return how many bytes a round of the scrubber found unchanged since they were sealed."""
    partition = shard.partition("t", 0)
    one = LocalPartition(shard.topic("t").record.topic_id, partition, shard.quarantine)
    scrubber = Scrubber(RealDisk(), lambda: [one], lambda *_: None, bytes_per_second=1 << 32, interval_ms=1000)
    await scrubber.scrub_all()
    await scrubber.stop()
    assert not any(segment.damage for segment in partition.log.segments)
    return shard.quarantine.scrubbed_bytes


async def main(directory: Path, segments: int) -> dict[str, Any]:
    settings = within_file_limit(
        NodeSettings(data_dir=str(directory), scrub_bytes_per_second=0, tier_check_ms=50, log_level="error")
    )
    watching = asyncio.create_task(watch())
    async with running_node(settings) as node:
        at_rest = look()
        await node.topics.create("t", 1, 1, {"segment_bytes": 65536})
        await produce(node, segments)
        first_life = await read_all(node, segments)
        tiered = await shipped(node, segments)
    async with running_node(settings) as node:
        second_life = await read_all(node, segments)
        scrubbed_bytes = await scrubbed(node.shard)
        local_bytes = sum(segment.size_bytes for segment in node.shard.partition("t", 0).log.segments)
        await node.topics.alter("t", {"local_retention_bytes": 1}, None)
        async with asyncio.timeout(PASS_S):
            while len(node.shard.partition("t", 0).log.segments) > 2:  # the last sealed one stays
                await asyncio.sleep(0.05)
        from_store = await read_all(node, segments)
        offline = [str(one.offline) for one in node.shard.partitions() if one.offline is not None]
        await node.topics.delete("t")
        for _ in range(200):  # a reader closes its files a moment later
            if (left := look()) <= at_rest + 4:
                break
            await asyncio.sleep(0.05)
    watching.cancel()
    return {
        "log_files": settings.log_files_max,
        "at_rest": at_rest,
        "most": most_files,
        "left": left,
        "first_life": first_life,
        "second_life": second_life,
        "from_store": from_store,
        "tiered": tiered,
        "is_scrubbed_whole": scrubbed_bytes == local_bytes,
        "offline": offline,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))))
