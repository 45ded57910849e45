"""The cost of a roll and its upload does not grow with the number of segments."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from engine.format import batch, paths
from engine.runtime.clock import SystemClock
from engine.tiering.reading.remote_logs import RemoteLogs
from engine.tiering.shipping.shipper import ShipperComponents, ShipperOptions
from engine.tiering.shipping.shippers import Shipping
from engine.tiering.store.file_store import FileStore
from engine.tiering.tier import Tier
from replication.replica.acks import Acks
from tests.engine.conftest import HandClock, Node, running_node
from tests.scale.calls import counted_calls
from tests.scale.count import SCALE
from tests.scale.counting_disk import CountingDisk

FEW = 25
MANY = max(SCALE, 10 * FEW)
ROLLS = 20
SHIPPED_S = 60


@asynccontextmanager
async def tiered_node(path: Path, disk: CountingDisk) -> AsyncIterator[tuple[Node, Tier]]:
    clock, ids = SystemClock(), (f"{n:032x}" for n in itertools.count())
    store = FileStore(str(path / "store"), new_id=ids.__next__)
    with ThreadPoolExecutor(2) as threads:
        async with running_node(path / "data", HandClock(), disk) as node:
            components = ShipperComponents(store, disk, clock, Random(1), ids.__next__, threads)
            shipping = Shipping(components, ShipperOptions(), node.shard.directory.identity.cluster_id, writer="w")
            logs = RemoteLogs(store, node.shard.directory, threads, cache_bytes_max=1 << 30)
            tier = Tier(shipping, logs, store.url)
            node.hooks.sealed, node.hooks.tiered_end = tier.wake_shipper, tier.tiered_end
            await tier.start()
            topic, _ = await node.shard.create_topic("t", 1, 1, {})
            tier.add(node.shard, topic.record, topic.partitions[0])
            yield node, tier
            await tier.stop()


async def roll(node: Node, tier: Tier, count: int) -> None:
    """Seal this many segments of one record each, and wait until all are in the store.

    The waits between two looks grow, so that a slow disk adds few calls to the count.
    """
    partition = node.shard.partition("t", 0)
    for _ in range(count):
        await node.leaders["t", 0].produce(bytearray(batch.encode_values([b"v"], 5)), Acks.ALL, 60_000)
        await node.shard.roll_topic("t")
        await node.shard.sealer.wait_saved(partition)
        wait_s = 0.002
        async with asyncio.timeout(SHIPPED_S):
            while tier.tiered_end(partition) < partition.log_end:
                await asyncio.sleep(wait_s)
                wait_s *= 1.5


async def test_a_roll_costs_no_pass_over_the_segments_before_it(tmp_path):
    disk = CountingDisk()
    async with tiered_node(tmp_path, disk) as (node, tier):
        await roll(node, tier, FEW)
        counts = []
        for segments in (FEW + ROLLS, MANY):
            await roll(node, tier, segments - ROLLS - len(node.shard.partition("t", 0).log.segments))
            disk.reset()
            with counted_calls() as calls:
                await roll(node, tier, ROLLS)
            counts.append(calls[0])
            listed = {path for path in disk.listed if f"/{paths.TOPICS}" in path}  # checkpoints list the others
            assert not listed, "a directory of segments is listed once, after the start"
    assert counts[1] < 1.5 * counts[0], "calls on the loop"


def test_a_list_behind_a_key_looks_at_nothing_before_it(tmp_path):
    """A commit lists the manifests after its own, in the directory of one day's manifests."""
    ids = itertools.count()
    store, counts = FileStore(str(tmp_path), new_id=lambda: f"{next(ids):032x}"), []
    for number in range(MANY):
        store.put(f"p/manifest/{number:020d}.json", b"")
        if number in (FEW, MANY - 1):
            with counted_calls() as calls:
                assert len(list(store.list("p/manifest/", f"p/manifest/{number - 1:020d}.json"))) == 1
            counts.append(calls[0])
    assert counts[0] == counts[1]
