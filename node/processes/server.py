"""A node in one process: checks, composition, serving, clean shutdown.

A composition root: clocks, disks, stores, ids and randomness are made here, and for a node of several shards in the
processes of node/processes/supervisor.py. Start order: port, tokens, data directory, store, log, listener; an error is
one line and changes nothing. Shutdown: reject new work, finish requests in progress, make everything durable, release.
"""

from __future__ import annotations

import asyncio
import gc
import random
import secrets
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from engine.cleaning.quarantine import LocalPartition
from engine.cleaning.scrubber import Restore, ScrubbedPartition, Scrubber
from engine.cleaning.segment_check import SealedFile
from engine.compaction.compactor import CompactedPartition, Compactor
from engine.compaction.swapping import OwnPartition
from engine.directory.data_directory import DataDirectory, Identity
from engine.directory.log_directories import LogDirectories, open_data_directories
from engine.format import paths
from engine.runtime.clock import SystemClock
from engine.runtime.disk import Disk, RealDisk
from engine.runtime.pooled_disk import PooledDisk
from engine.runtime.tasks import start_task
from engine.shard.shard import Shard
from engine.tiering.reading.remote_logs import RemoteLogs
from engine.tiering.reading.repair import restore_segment
from engine.tiering.shipping.shipper import ShipperComponents, ShipperOptions
from engine.tiering.shipping.shippers import Shipping
from engine.tiering.store.store import ObjectStore, open_store
from engine.tiering.tier import Tier
from gateway.links.addresses import reserved_port, url_of
from gateway.produce.partitioner import Partitioners
from gateway.routing.peers import Peers
from gateway.settings import NodeSettings
from node.cluster.sessions import check_standalone, open_coordination
from node.node import Node
from node.setup.file_limit import within_file_limit
from node.setup.listener import Listener
from node.setup.logs import set_up_logging
from node.setup.reloading import read_tokens_at_start, reloader_for_node, use_tokens
from node.shard_events import shard_events
from replication.cluster.producer_ids import ProducerIds, StoredBlocks, floor_of
from replication.replica.standalone import StandaloneReplicas

DISK_THREADS = 8  # for reads that miss the page cache, and for large bodies; the writer has its own thread
STORE_THREADS = 4  # for uploads and reads of the store: a store that hangs blocks nothing else
GC_YOUNG = 50_000  # net allocations before a collection of the youngest generation; Python's default is 700
T = TypeVar("T")
BOOT_ID = "/proc/sys/kernel/random/boot_id"


async def serve(settings: NodeSettings) -> None:
    """Run a node until SIGTERM or SIGINT. Raises StartRefused."""
    set_up_logging(settings.log_level, requests=settings.request_log)
    settings = within_file_limit(settings)
    stop = stop_event()
    with reserved_port(settings.host, settings.port) as port:
        await _serve(settings, port, stop)


async def _serve(settings: NodeSettings, port: int, stop: asyncio.Event) -> None:
    async with running_node(settings) as node:
        node.peers.url = node.peers.direct_url = settings.advertised_url or url_of(settings, port)
        freeze_objects()
        listener = Listener(node, settings, [port])
        await listener.open()
        reloader = reloader_for_node(settings, node, listener)
        reloader.start()
        print_ready(node.peers.url, settings, node.tier.store_url)
        await stop.wait()
        reloader.stop()
        await listener.drain()


@asynccontextmanager
async def running_node(settings: NodeSettings, peers: Peers | None = None) -> AsyncIterator[Node]:
    """Run a node without a listener; tests serve it with aiohttp's own server. Raises StartRefused."""
    tokens = read_tokens_at_start(settings)
    disk, clock = PooledDisk(RealDisk(), settings.log_files_max), SystemClock()
    check_standalone(disk, settings.directories[0])
    directories = open_directories(disk, settings)
    directory = directories.first
    with (
        ThreadPoolExecutor(DISK_THREADS, "penstock-disk") as executor,
        ThreadPoolExecutor(STORE_THREADS, "penstock-store") as store_executor,
    ):
        try:
            coordination = await open_coordination(directories.first, executor)
            store = await asyncio.get_running_loop().run_in_executor(
                store_executor, open_probed_store, store_url(settings, directory)
            )
        except BaseException:
            directories.release_unused()
            raise
        keys_max = settings.idempotency_keys_total_max
        components = ShipperComponents(store, disk, clock, random.Random(), new_id, store_executor)
        options = ShipperOptions(idle_seconds=settings.tier_check_ms / 1000)
        shipping = Shipping(components, options, directory.identity.cluster_id, writer=new_id())
        remote_logs = RemoteLogs(store, directory, store_executor, cache_bytes_max=settings.tier_cache_bytes_max)
        tier = Tier(shipping, remote_logs, store.url)
        replicas, partitioners = StandaloneReplicas(settings.node_id), Partitioners(random.Random())
        events = shard_events(replicas, tier, partitioners)
        additional = directories.additional
        shard = Shard(disk, directory, clock, executor, new_id, additional=additional, keys_max=keys_max, events=events)
        blocks = StoredBlocks(coordination.session())
        producer_ids = ProducerIds(blocks)
        node = Node(
            settings,
            shard,
            tier,
            shard,
            peers or Peers(),
            producer_ids,
            clock,
            executor,
            random.Random(),
            replicas,
            partitioners,
        )
        use_tokens(node, tokens)
        try:
            await shard.start()
        except BaseException:
            await shard.catalog.stop()
            shard.writer.stop()
            await coordination.close()
            if shard.catalog.records:
                directories.release()
            else:  # it has opened no log
                directories.release_unused()
            raise
        blocks.floor = floor_of(shard.partitions())
        await tier.start()
        restore = segment_restorer(store, disk, directory.identity)
        scrubber = make_scrubber(settings, disk, lambda: local_partitions_of(shard), restore)
        scrubber.start()
        compactor = make_compactor(settings, disk, lambda: compacted_partitions_of(shard))
        compactor.start()
        try:
            yield node
        finally:
            await node.drain()
            await compactor.stop()
            await scrubber.stop()
            await tier.stop()
            await coordination.close()
            await shard.stop()


def open_directories(disk: Disk, settings: NodeSettings, cluster_id: str | None = None) -> LogDirectories:
    """Open the data directories, which must belong to the cluster if it is known. Raises StartRefused."""
    return open_data_directories(
        disk,
        settings.directories,
        node_id=settings.node_id,
        cluster_id=cluster_id or settings.cluster_id or None,
        boot_id=Path(BOOT_ID).read_text().strip(),
        new_id=new_id,
    )


def store_url(settings: NodeSettings, directory: DataDirectory) -> str:
    return settings.store or Path(directory.path, paths.EMBEDDED_STORE).as_uri()


def open_probed_store(url: str) -> ObjectStore:
    """Open a store and check that it supports conditional puts. Raises EngineError; blocks."""
    store = open_store(url)
    store.probe()
    return store


def make_scrubber(
    settings: NodeSettings, disk: Disk, partitions: Callable[[], Iterable[ScrubbedPartition]], restore: Restore
) -> Scrubber:
    return Scrubber(
        disk,
        partitions,
        restore,
        bytes_per_second=settings.scrub_bytes_per_second,
        interval_ms=settings.scrub_interval_ms,
    )


def make_compactor(
    settings: NodeSettings, disk: Disk, partitions: Callable[[], Iterable[CompactedPartition]]
) -> Compactor:
    return Compactor(
        disk,
        partitions,
        bytes_per_second=settings.compaction_bytes_per_second,
        memory_bytes=settings.compaction_memory_bytes,
        check_ms=settings.compaction_check_ms,
        random_bytes=secrets.token_bytes,
    )


def compacted_partitions_of(shard: Shard) -> list[CompactedPartition]:
    return [
        OwnPartition(partition, shard.segment_swapper)
        for topic in shard.topics.values()
        if topic.settings.is_compacted
        for partition in topic.partitions.values()
    ]


def local_partitions_of(shard: Shard) -> list[ScrubbedPartition]:
    return [
        LocalPartition(topic.record.topic_id, partition, shard.quarantine)
        for topic in shard.topics.values()
        for partition in topic.partitions.values()
    ]


def segment_restorer(store: ObjectStore, disk: Disk, identity: Identity) -> Restore:
    """Return a function that restores damaged segments from the store."""

    def restore(one: ScrubbedPartition, file: SealedFile) -> str | None:
        prefix = paths.store_partition_prefix(identity.cluster_id, one.topic, one.topic_id, one.number)
        return restore_segment(store, disk, prefix, file)

    return restore


def new_id() -> str:
    return uuid.uuid4().hex  # noqa: TID251 - the composition root


def freeze_objects() -> None:
    """Freeze the current objects out of garbage collection, and collect less often.

    A request makes thousands of short-lived objects; at Python's thresholds the collector would walk the whole heap for
    them again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG, *gc.get_threshold()[1:])


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of several coroutines and cancel the others. Raises its error."""
    tasks = [start_task(wait) for wait in waits]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    for task in done:
        task.result()


class StoppedEarly(Exception):
    """The node was stopped before it was ready. Not a failure: all steps of the start have been undone."""


async def unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, or cancel it if `stop` is set first. Raises StoppedEarly then."""
    working: asyncio.Task[T] = start_task(work)
    stopping = start_task(stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait([working])
    if working.cancelled():
        raise StoppedEarly
    return working.result()


def print_ready(url: str, settings: NodeSettings, store: str) -> None:
    data = ", ".join(settings.data_dirs or (settings.data_dir,))
    print(f"penstock is ready on {url} (data: {data}, store: {store})", flush=True)  # noqa: T201
