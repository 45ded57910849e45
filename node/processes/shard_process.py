"""One shard of a node as a process: opens its partitions, serves the shared port and its own, answers its siblings.

Started by node/processes/supervisor.py only, with its task as one line on standard input. Ends on SIGTERM, or when the
supervisor is gone: without it no topic could be changed.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.directory.ceilings import Ceiling
from engine.directory.data_directory import DataDirectory
from engine.directory.log_directories import FAULT_HINT
from engine.directory.topics import TopicRecord, changed_topic, check_new_topic
from engine.errors import EngineError, Unreachable
from engine.partition.spool import Spool
from engine.runtime.clock import SystemClock
from engine.runtime.disk import RealDisk
from engine.runtime.pooled_disk import PooledDisk
from engine.runtime.tasks import in_background, start_task
from engine.shard.served_topics import Topic
from engine.shard.shard import MovedPartition, Shard
from engine.tiering.reading.remote_logs import RemoteLogs
from engine.tiering.shipping.counting import AcceptedCounting
from engine.tiering.store.store import open_store
from gateway.access.oidc.keys import state_from as oidc_state_from
from gateway.access.state import Change, state_from
from gateway.links.link import Busy, Handler, LinkLost, handler
from gateway.links.link_client import LinkClient, listen
from gateway.links.process_links import Process, ProcessLinks
from gateway.produce.partitioner import Partitioners
from gateway.routing.peers import Peers
from node.cluster.standalone_shard import StandaloneShard
from node.messages import (
    CHANGE_S,
    RecordFields,
    ShardTask,
    connect_to_supervisor,
    record_from,
    records_from,
    run_until_complete,
    shard_socket,
    supervisor_socket,
    worker_socket,
)
from node.node import Node
from node.process_calls import (
    AlterTopic,
    ClosePartitions,
    CreateTopic,
    DirectoryFailed,
    PartitionMoved,
    Ready,
)
from node.processes.liveness_watchdog import HEARTBEAT
from node.processes.process_parts import (
    DISK_THREADS,
    STORE_THREADS,
    first_of,
    freeze_objects,
    make_usage_keeper,
    new_id,
    stop_event,
)
from node.processes.shard_tier import ShardTier
from node.setup.auditing import SupervisedAudit
from node.setup.file_limit import within_file_limit
from node.setup.issuers import use_issuers
from node.setup.listener import Listener
from node.setup.logs import set_up_logging
from node.setup.reloading import handlers_for_supervisor, use_tokens
from node.setup.tracing import export_to_worker
from node.shard_events import shard_events
from replication.cluster.producer_ids import ProducerIds, floor_of

if TYPE_CHECKING:
    from node.cluster.shard_cluster import ShardCluster


async def run(task: ShardTask) -> None:
    """Serves until stopped. Raises SystemExit if not everything of this shard is durable."""
    set_up_logging(task.settings.log_level, requests=task.settings.request_log)
    settings = within_file_limit(task.settings, ports=len(task.ports))
    stop = stop_event()
    freeze_objects()  # before thousands of partitions are opened
    disk, clock = PooledDisk(RealDisk(), settings.log_files_max), SystemClock()
    directory, *additional = [directory.part(disk, task.identity, task.index) for directory in task.directories]
    with (
        ThreadPoolExecutor(DISK_THREADS, "penstock-disk") as executor,
        ThreadPoolExecutor(STORE_THREADS, "penstock-store") as store_executor,
    ):
        cluster = _membership(task)
        links = ProcessLinks(_siblings(task), cluster.credentials)
        peers = Peers(task.index, task.count, links, cluster.view, settings.node_id)
        keys_max = max(1, settings.idempotency_keys_total_max // task.count)
        supervisor_lost = asyncio.Event()
        handlers: dict[str, Handler] = {**HEARTBEAT}  # complete before `supervisor` connects
        supervisor = LinkClient(supervisor_socket(task.run_dir), handlers, on_lost=supervisor_lost.set)
        worker = LinkClient(worker_socket(task.run_dir))
        opening = partial(open_store, task.store_url, identity=task.store_identity)
        store = await asyncio.get_running_loop().run_in_executor(store_executor, opening)
        logs = RemoteLogs(store, directory, store_executor, cache_bytes_max=settings.tier_cache_bytes_max)
        spool = Spool(-(-settings.tier_spool_bytes_max // task.count))
        tier = ShardTier(logs, worker, store.url, spool)
        replicas = cluster.create_replicas(peers, supervisor.link, new_id, clock.boottime, spool)
        partitioners = Partitioners(random.Random())
        reports = (partial(report_failure, supervisor), partial(report_move, supervisor))
        events = shard_events(replicas, tier, partitioners, *reports)
        move_bytes_per_second = max(1, settings.disk_move_bytes_per_second // task.count)
        shard = Shard(
            disk, directory, clock, executor, new_id, peers.owns, additional, keys_max, events, move_bytes_per_second
        )
        shard.catalog.without_metadata = task.without_metadata
        changes = SupervisedChanges(shard, supervisor, cluster.replication_factor_max)
        producer_ids = ProducerIds(SupervisedBlocks(supervisor))
        peers.url, peers.direct_url = task.url, task.direct_urls[task.index]
        usage = make_usage_keeper(
            RealDisk(), directory, executor, store, store_executor, clock, shard=task.index, shards=task.count
        )
        node = Node(
            settings,
            shard,
            tier,
            changes,
            peers,
            producer_ids,
            clock,
            executor,
            random.Random(),
            replicas,
            partitioners,
            cluster.topic_finder,
            cluster.operate,
            usage,
            is_ready=False,
            siblings=lambda: {"worker": worker, "supervisor": supervisor},
            change_access=partial(_change_access, supervisor),
            audit=SupervisedAudit(supervisor) if settings.is_audited else None,
        )
        issuers = SupervisedIssuers(node, supervisor)
        await logs.start()
        listener = Listener(node, settings, task.ports, cluster.socket_passing(peers), task.listeners)
        handlers |= {
            **changes.handlers(),
            **handlers_for_supervisor(node, listener),
            **issuers.handlers(),
            **cluster.handlers(shard),
        }
        link = await connect_to_supervisor(supervisor)
        records, _ = await link.call("topics", task.index, timeout_s=CHANGE_S)
        tokens, _ = await link.call(
            "tokens", None, timeout_s=CHANGE_S
        )  # after connecting: a later change is sent by a call
        use_tokens(node, tokens)
        access, _ = await link.call("access", None, timeout_s=CHANGE_S)
        node.access.use_state(None if access is None else state_from(access))
        state, _ = await link.call("issuers", None, timeout_s=CHANGE_S)
        issuers.use(state)
        await cluster.load_view(link)
        await shard.start(records_from(records))
        changes.is_started.set()
        for_peers = node.peer_handlers()
        server = await listen(shard_socket(task.run_dir, task.index), {**for_peers, **tier.handlers(shard)})
        await cluster.open(for_peers)
        links.connect()
        node.quota_lending.start()
        worker.connect()
        counting = AcceptedCounting(store, store_executor, clock, shard, task.identity.cluster_id, new_id())
        counting.start(settings.accepted_counts_ms)
        usage.start()
        node.stored_bytes.start()
        node.holdings.start()
        node.observer.start()
        export = export_to_worker(settings, node.spans, worker)
        if export is not None:
            export.start()
        freeze_objects()
        await listener.open()
        await first_of(stop.wait(), supervisor_lost.wait(), links.wait_connected())
        if not (stop.is_set() or supervisor_lost.is_set()):
            await link.call("ready", Ready(task.index, floor_of(shard.partitions())), timeout_s=CHANGE_S)
        await first_of(stop.wait(), supervisor_lost.wait())
        await cluster.move_clients(listener)
        await listener.drain()
        if export is not None:
            await export.stop()
        node.observer.stop()
        node.holdings.stop()
        await node.stored_bytes.stop()
        await usage.stop()
        await counting.stop()
        node.quota_lending.stop()
        await cluster.close()
        server.close()
        for caller in (worker, supervisor):
            caller.close()
        links.close()
        await logs.stop()
        if not await shard.stop():
            raise SystemExit("not everything of this shard is durable")  # a clean exit would skip recovery


class SupervisedIssuers:
    """Takes the tokens of the issuers whose keys the supervisor fetches, and asks it for keys that are not known."""

    def __init__(self, node: Node, supervisor: LinkClient) -> None:
        self._node = node
        self._supervisor = supervisor

    def __repr__(self) -> str:
        return f"SupervisedIssuers({self._node.access.verifier})"

    def use(self, text: str | None) -> None:
        """Verifies tokens with this state from now on; None: the node has no issuers."""
        if text is not None:
            use_issuers(self._node, oidc_state_from(text), self._ask)

    def handlers(self) -> dict[str, Handler]:
        async def issuers(text: str, _: bytes) -> tuple[None, bytes]:
            self.use(text)
            return None, b""

        return {"issuers": handler(str, issuers)}

    def _ask(self, alias: str) -> None:
        in_background(self._call(alias), "asking for the keys of an issuer", of=alias)

    async def _call(self, alias: str) -> None:
        with suppress(EngineError):  # it is restarting, and fetches then anyway
            await self._supervisor.link().call("ask_keys", alias, timeout_s=CHANGE_S)


async def _change_access(supervisor: LinkClient, change: Change) -> int:
    generation: int
    generation, _ = await supervisor.link().call("change_access", change, timeout_s=CHANGE_S)
    return generation


def _siblings(task: ShardTask) -> dict[Process, LinkClient]:
    others = (index for index in range(task.count) if index != task.index)
    return {(None, index): LinkClient(shard_socket(task.run_dir, index)) for index in others}


def _membership(task: ShardTask) -> StandaloneShard | ShardCluster:
    if task.cluster is None:
        return StandaloneShard(task)
    from node.cluster.shard_cluster import ShardCluster  # it imports aiohttp

    return ShardCluster(task, task.cluster)


class SupervisedChanges:
    """Forwards topic changes to the supervisor, and applies those that it sends to every shard."""

    def __init__(self, shard: Shard, supervisor: LinkClient, replication_factor_max: int) -> None:
        self._shard = shard
        self._supervisor = supervisor
        self._openings: dict[str, asyncio.Future[Any]] = {}  # topics and partitions being opened, by topic
        self.is_started = asyncio.Event()
        self._replication_factor_max = replication_factor_max

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        overrides: Mapping[str, object],
        ceiling: Ceiling | None = None,
    ) -> tuple[Topic, bool]:
        # checked before the call: a link cannot carry integers of any size
        most = self._replication_factor_max
        check_new_topic(name, partitions, replication_factor, overrides, replication_factor_max=most)
        arguments = CreateTopic(name, partitions, replication_factor, dict(overrides), ceiling)
        is_new, _ = await self._supervisor.link().call("create_topic", arguments, timeout_s=CHANGE_S)
        return self._shard.topic(name), is_new

    async def alter_topic(
        self, name: str, overrides: Mapping[str, object], partitions: int | None, ceiling: Ceiling | None = None
    ) -> Topic:
        changed_topic(self._shard.topic(name).record, overrides, partitions)
        arguments = AlterTopic(name, dict(overrides), partitions, ceiling)
        await self._supervisor.link().call("alter_topic", arguments, timeout_s=CHANGE_S)
        return self._shard.topic(name)

    async def delete_topic(self, name: str) -> None:
        await self._supervisor.link().call("delete_topic", name, timeout_s=CHANGE_S)

    async def _open(self, name: str, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Opens a topic, one at a time per topic: a cancelled caller leaves threads that still open its files."""
        await self._wait_opened(name)
        opening = self._openings[name] = start_task(work())
        opening.add_done_callback(lambda _: self._openings.pop(name))
        await asyncio.shield(opening)

    async def _wait_opened(self, name: str) -> None:
        """Waits for a topic that is being opened."""
        while name in self._openings:
            await asyncio.wait([self._openings[name]])

    async def _open_topic(self, record: TopicRecord) -> None:
        if record.name not in self._shard.topics:
            await self._shard.open_topic(record)

    def handlers(self) -> dict[str, Handler]:
        """Returns the handlers for calls of the supervisor. All wait until the shard has started."""

        async def open_topic(fields: RecordFields, _: bytes) -> tuple[None, bytes]:
            await self.is_started.wait()
            record = record_from(fields)
            await self._open(record.name, partial(self._open_topic, record))
            return None, b""

        async def open_added(fields: RecordFields, _: bytes) -> tuple[None, bytes]:
            await self.is_started.wait()
            record = record_from(fields)
            await self._open(record.name, partial(self._shard.open_added, record))
            return None, b""

        async def apply_record(fields: RecordFields, _: bytes) -> tuple[None, bytes]:
            await self.is_started.wait()
            self._shard.apply_record(record_from(fields))
            return None, b""

        async def close_topic(name: str, _: bytes) -> tuple[None, bytes]:
            await self.is_started.wait()
            await self._wait_opened(name)
            if name in self._shard.topics:
                await self._shard.close_topic(name)
            return None, b""

        async def close_partitions(closed: ClosePartitions, _: bytes) -> tuple[None, bytes]:
            await self.is_started.wait()
            await self._wait_opened(closed.topic)
            if closed.topic in self._shard.topics:
                await self._shard.close_partitions(closed.topic, closed.partitions)
            return None, b""

        async def take_offline(failed: DirectoryFailed, _: bytes) -> tuple[None, bytes]:
            self._shard.directories.take_offline(failed.directory_id, Unreachable(failed.detail, hint=FAULT_HINT))
            return None, b""

        return {
            "directory_failed": handler(DirectoryFailed, take_offline),
            "open_topic": handler(RecordFields, open_topic),
            "open_added": handler(RecordFields, open_added),
            "altered": handler(RecordFields, apply_record),
            "close_topic": handler(str, close_topic),
            "close_partitions": handler(ClosePartitions, close_partitions),
        }


def report_failure(supervisor: LinkClient, directory: DataDirectory) -> None:
    """Reports a failed directory. The supervisor logs it and notifies all shards; without one, this shard ends."""
    assert directory.fault is not None
    with suppress(Busy, LinkLost):
        failed = DirectoryFailed(directory.directory_id, directory.fault.detail)
        sent = supervisor.link().begin("directory_failed", failed)
        sent.add_done_callback(lambda future: future.cancelled() or future.exception())


async def report_move(supervisor: LinkClient, _: Shard, moved: MovedPartition) -> None:
    """Asks the supervisor to record that a partition is in another data directory. Raises EngineError."""
    await supervisor.link().call("partition_moved", PartitionMoved(*moved), timeout_s=CHANGE_S)


class SupervisedBlocks:
    """Allocates blocks of producer ids from the supervisor, which alone has a coordination session."""

    def __init__(self, supervisor: LinkClient) -> None:
        self._supervisor = supervisor

    async def take(self) -> range:
        bounds, _ = await self._supervisor.link().call("take_producer_ids", None, timeout_s=CHANGE_S)
        return range(*bounds)

    async def end(self) -> int:
        end, _ = await self._supervisor.link().call("end_of_producer_ids", None, timeout_s=CHANGE_S)
        return int(end)


if __name__ == "__main__":
    run_until_complete(run(ShardTask.read(sys.stdin.readline())))
