"""A node in one process: checks, composition, serving, clean shutdown.

A composition root: clocks, disks, stores, ids and randomness are made here, and for a node of several shards in the
processes of node/processes/supervisor.py. Start order: port, tokens, data directory, store, log, listener; an error is
one line and changes nothing. Shutdown: reject new work, finish requests in progress, make everything durable, release.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

from engine.cleaning.quarantine import LocalPartition
from engine.cleaning.scrubber import ScrubbedPartition
from engine.compaction.compactor import CompactedPartition
from engine.compaction.swapping import OwnPartition
from engine.partition.spool import Spool
from engine.runtime.clock import SystemClock
from engine.runtime.disk import RealDisk
from engine.runtime.pooled_disk import PooledDisk
from engine.shard.shard import Shard
from engine.tiering.reading.remote_logs import RemoteLogs
from engine.tiering.shipping.counting import AcceptedCounting
from engine.tiering.shipping.shipper import ShipperComponents, ShipperOptions
from engine.tiering.shipping.shippers import Shipping
from engine.tiering.tier import Tier
from gateway.access.listeners.listeners_file import ListenerSpec
from gateway.access.oidc.issuers import Issuer
from gateway.access.oidc.keys import OidcState
from gateway.access.state import AccessState
from gateway.admin.standalone_operations import operate_standalone
from gateway.links.addresses import reserve_port, url_of
from gateway.links.kafka_addresses import with_kafka_port
from gateway.links.rest_proxy_address import with_rest_proxy_port
from gateway.produce.partitioner import Partitioners
from gateway.routing.peers import Peers
from gateway.routing.topic_finder import AllTopicsKnown
from gateway.settings import NodeSettings
from node.cluster.access_keeper import AccessKeeper
from node.cluster.sessions import check_standalone, open_coordination
from node.node import Node
from node.processes.process_parts import (
    DISK_THREADS,
    STORE_THREADS,
    StoppedEarly,
    freeze_objects,
    make_compactor,
    make_merge_lane,
    make_scrubber,
    make_usage_keeper,
    new_id,
    open_directories,
    open_probed_store,
    print_ready,
    run_unless_stopped,
    segment_restorer,
    stop_event,
    store_url,
    wait_until_unlocked,
)
from node.processes.service_manager import STOPPING, notify_manager
from node.setup.auditing import open_audit
from node.setup.file_limit import within_file_limit
from node.setup.issuers import IssuerKeys, read_issuers_at_start, use_issuers
from node.setup.listener import Listener
from node.setup.logs import set_up_logging
from node.setup.public_listeners import read_listeners, reserved
from node.setup.reloading import FileReloader, read_tokens_at_start, reloader_for_node, use_tokens
from node.setup.statsd import statsd_sender, texts_of_process
from node.setup.tracing import CollectorExport
from node.shard_events import shard_events
from replication.cluster.producer_ids import ProducerIds, StoredBlocks, floor_of
from replication.replica.standalone import StandaloneReplicas


async def serve(settings: NodeSettings) -> None:
    """Runs a node until SIGTERM or SIGINT. Raises StartRefused."""
    set_up_logging(settings.log_level, requests=settings.request_log)
    settings = within_file_limit(settings)
    stop = stop_event()
    freeze_objects()  # before thousands of partitions are opened
    default, *further = read_listeners(settings, SystemClock().now_ms())
    with suppress(StoppedEarly):
        await run_unless_stopped(stop, wait_until_unlocked(RealDisk(), settings))
        with (
            reserve_port(settings.host, settings.port) as port,
            reserved(further) as others,
            with_kafka_port(settings) as settings,
            with_rest_proxy_port(settings) as settings,
        ):
            await _serve(settings, port, [default, *others], stop)


async def _serve(settings: NodeSettings, port: int, specs: Sequence[ListenerSpec], stop: asyncio.Event) -> None:
    issuers = read_issuers_at_start(settings)
    async with running_node(settings) as node:
        node.peers.url = node.peers.direct_url = settings.advertised_url or url_of(settings, port)
        freeze_objects()
        listener = Listener(node, settings, [port], specs=specs)
        reloader = reloader_for_node(settings, node, listener, specs)
        keys = await _fetch_keys(settings, issuers, node, reloader) if issuers else None
        await listener.open()
        reloader.start()
        print_ready(node.peers.url, settings, node.tier.store_url, specs[1:])
        await stop.wait()
        notify_manager(STOPPING)
        reloader.stop()
        if keys is not None:
            keys.stop()
        await listener.drain()


async def _fetch_keys(
    settings: NodeSettings, issuers: Sequence[Issuer], node: Node, reloader: FileReloader
) -> IssuerKeys:
    """Takes tokens of issuers from now on, and fetches their keys. Waits for none of them."""

    async def use(state: OidcState) -> None:
        use_issuers(node, state, keys.ask)

    keys = IssuerKeys(settings, issuers, node.executor, use, random.Random())
    keys.watch(reloader)
    await keys.start()
    return keys


@asynccontextmanager
async def running_node(settings: NodeSettings, peers: Peers | None = None) -> AsyncIterator[Node]:
    """Runs a node without a listener; tests serve it themselves. Raises StartRefused."""
    tokens = read_tokens_at_start(settings)
    disk, clock = PooledDisk(RealDisk(), settings.log_files_max), SystemClock()
    check_standalone(disk, settings.directories[0])
    directories = open_directories(disk, settings)
    directory = directories.first
    with (
        ThreadPoolExecutor(DISK_THREADS, "penstock-disk") as executor,
        ThreadPoolExecutor(STORE_THREADS, "penstock-store") as store_executor,
    ):
        audit = None
        try:
            audit = await open_audit(settings, directory.identity.cluster_id, RealDisk(), executor, clock)
            coordination = await open_coordination(directories.first, executor)
            store, _ = await asyncio.get_running_loop().run_in_executor(
                store_executor, open_probed_store, store_url(settings, directory), directory
            )
        except BaseException:
            if audit is not None:
                await audit.close()
            directories.release_unused()
            raise
        keys_max = settings.idempotency_keys_total_max
        merging = make_merge_lane(settings)
        components = ShipperComponents(store, disk, clock, random.Random(), new_id, store_executor, merging)
        options = ShipperOptions(idle_seconds=settings.tier_check_ms / 1000)
        shipping = Shipping(components, options, directory.identity.cluster_id, writer=new_id())
        remote_logs = RemoteLogs(store, directory, store_executor, cache_bytes_max=settings.tier_cache_bytes_max)
        spool = Spool(settings.tier_spool_bytes_max)
        tier = Tier(shipping, remote_logs, store.url, spool)
        replicas, partitioners = StandaloneReplicas(settings.node_id, spool), Partitioners(random.Random())
        events = shard_events(replicas, tier, partitioners)
        additional = directories.additional
        shard = Shard(
            disk,
            directory,
            clock,
            executor,
            new_id,
            additional=additional,
            keys_max=keys_max,
            events=events,
            move_bytes_per_second=settings.disk_move_bytes_per_second,
        )
        session = coordination.session()
        blocks = StoredBlocks(session)

        async def use_access(state: AccessState) -> None:
            node.access.use_state(state)

        access = AccessKeeper(lambda: session, use_access)
        producer_ids = ProducerIds(blocks)
        usage = make_usage_keeper(RealDisk(), directory, executor, store, store_executor, clock)
        node = Node(
            settings,
            shard,
            tier,
            shard,
            peers or Peers(node_id=settings.node_id),
            producer_ids,
            clock,
            executor,
            random.Random(),
            replicas,
            partitioners,
            AllTopicsKnown(),
            operate_standalone(settings.node_id),
            usage,
            change_access=access.change,
            access_gauges=access.gauges,
            audit=audit,
        )
        use_tokens(node, tokens)
        try:
            await access.start()
            await shard.start()
        except BaseException:
            access.stop()
            await shard.catalog.stop()
            shard.writer.stop()
            if audit is not None:
                await audit.close()
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
        counting = AcceptedCounting(store, store_executor, clock, shard, directory.identity.cluster_id, new_id())
        counting.start(settings.accepted_counts_ms)
        usage.start()
        node.stored_bytes.start()
        node.holdings.start()
        node.observer.start()
        export = CollectorExport(settings, node.spans, executor)
        export.start()
        statsd = statsd_sender(settings, texts_of_process(node.metrics, executor), executor)
        if statsd is not None:
            statsd.start()
        try:
            yield node
        finally:
            await node.drain()
            if statsd is not None:
                statsd.stop()
            await export.stop()
            access.stop()
            node.observer.stop()
            node.holdings.stop()
            await node.stored_bytes.stop()
            await usage.stop()
            await counting.stop()
            await compactor.stop()
            await scrubber.stop()
            await tier.stop()
            await coordination.close()
            if audit is not None:
                await audit.close()
            await shard.stop()


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
