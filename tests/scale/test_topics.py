"""Many topics of one partition: created, listed, described, written to, stopped, started again and deleted.

The cost of a change of one topic is counted in calls of the loop's thread and of the disk, not in time.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

from engine.format import batch
from engine.runtime.pooled_disk import PooledDisk
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock, running_node
from tests.scale.calls import counted_calls
from tests.scale.count import SCALE
from tests.scale.counting_disk import CountingDisk
from tests.scenarios.gateways import Topic, in_process

T = 1_700_000_000_000
TRIES = 5  # the cheapest counts: housekeeping may run in between
REST_S = 0.02  # until the shipper of the previous topic has read the store
FEW = 16  # files that may be open
THREADS = 2 + 1  # the executor's and the writer
STAY_MS = 3_600_000  # longer than the test: shippers of other topics are not counted
STEP = SCALE // 10  # one in this many topics is written to
SYNCS_MAX = 100  # of a stop or a start, for any number of topics
START_CALLS_MAX = 50  # to the disk, per topic

Change = Callable[[str], Awaitable[object]]


async def cheapest(change: Change, prefix: str) -> int:
    """Return how many calls in this thread one change takes."""
    costs = []
    for number in range(TRIES):
        await asyncio.sleep(REST_S)
        with counted_calls() as count:
            await change(f"{prefix}-{number}")
        costs.append(count[0])
    return min(costs)


async def cheapest_on_disk(disk: CountingDisk, change: Change, prefix: str) -> int:
    costs = []
    for number in range(TRIES):
        disk.reset()
        await change(f"{prefix}-{number}")
        costs.append(sum(disk.calls.values()))
    return min(costs)


def files_open() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_creation_makes_no_calls_for_each_topic_that_is_there(tmp_path):
    async with in_process(tmp_path, topics_max=2 * SCALE, tier_check_ms=STAY_MS) as gateway:
        node = gateway.node

        async def create(name: str) -> None:
            await node.topics.create(name, 1, 1, {})

        async def create_slowly(name: str) -> None:
            assert sum(topic.record.partitions for topic in node.shard.topics.values()) == len(node.shard.topics)
            await create(name)

        early = await cheapest(create, "early")
        for number in range(SCALE):
            await create(f"t{number}")
        late, planted = await cheapest(create, "late"), await cheapest(create_slowly, "slow")
        sys.stderr.write(f"\na creation makes {early} calls, {late} behind {SCALE} others; with a sum {planted}\n")
        assert late - early < SCALE // 2
        assert planted - early > SCALE, "a pass over all topics is not seen"


async def test_topics_are_listed_described_written_to_and_there_after_a_start(tmp_path):
    names = sorted(f"t{number}" for number in range(SCALE))
    files = files_open()
    for life in range(2):
        async with in_process(tmp_path, topics_max=SCALE, log_files_max=FEW) as gateway:
            at_rest = files_open()
            for name in names if life == 0 else ():
                await gateway.node.topics.create(name, 1, 1, {})
            for name in names[::STEP]:
                topic = Topic(gateway, name)
                answer = await topic.post_records({"value": life})
                assert answer.status == 200
                assert await topic.values() == list(range(life + 1))
            listed = (await gateway.send("GET", "/v1/topics")).json["topics"]
            assert [row["topic"] for row in listed] == names
            for row in listed[::STEP]:
                described = await Topic(gateway, row["topic"]).describe()
                assert described["topic_id"] == row["topic_id"]
                assert [one["partition"] for one in described["partitions"]] == [0]
            assert await gateway.metric("penstock_topics") == SCALE
            assert files_open() < at_rest + 2 * FEW
        assert files_open() <= files + 4


async def test_changes_starts_and_stops_make_no_disk_calls_for_each_topic_that_is_there(tmp_path):
    disk, clock = CountingDisk(), HandClock()
    pool = PooledDisk(disk, FEW)
    names = [f"t{number}" for number in range(SCALE)]
    async with running_node(tmp_path / "data", clock, pool) as node:
        shard = node.shard

        async def create(name: str) -> None:
            await shard.create_topic(name, 1, 1, {})

        created_early = await cheapest_on_disk(disk, create, "early")
        for name in names:
            await create(name)
        assert await cheapest_on_disk(disk, create, "late") == created_early
        for prefix in ("early", "late"):
            await cheapest_on_disk(disk, shard.delete_topic, prefix)
        produced = [node.leaders[name, 0].produce(batch.encode_values([b"v"], T), Acks.ALL, 600_000) for name in names]
        await asyncio.gather(*produced)
        assert pool.open_files <= FEW + THREADS
        disk.reset()
    stopped = disk.syncs
    disk.reset()
    async with running_node(tmp_path / "data", clock, pool) as node:
        shard = node.shard
        started = sum(disk.calls.values())
        assert disk.syncs < SYNCS_MAX
        assert pool.open_files <= FEW + THREADS
        assert sorted(shard.topics) == sorted(names)
        assert all(partition.log_end == 1 for partition in shard.partitions())
        for number in range(TRIES):
            await shard.create_topic(f"more-{number}", 1, 1, {})
            await node.leaders[f"more-{number}", 0].produce(batch.encode_values([b"v"], T), Acks.ALL, 600_000)
        deleted_early = await cheapest_on_disk(disk, shard.delete_topic, "more")
        for name in names[:-TRIES]:
            await shard.delete_topic(name)
        deleted = []
        for name in names[-TRIES:]:
            disk.reset()
            await shard.delete_topic(name)
            deleted.append(sum(disk.calls.values()))
        assert min(deleted) <= deleted_early + 2, "but for a handle that the pool closed"
        assert shard.topics.partition_count == 0
    calls = f"{created_early} for a creation, {deleted_early} for a deletion, {started} for a start, {stopped} syncs"
    sys.stderr.write(f"\ncalls to the disk with {SCALE} topics: {calls} for a stop\n")
    assert stopped < SYNCS_MAX
    assert started < START_CALLS_MAX * SCALE
    assert pool.open_files == 0
