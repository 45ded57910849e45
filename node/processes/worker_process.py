"""The worker of a node of several shards: ships, scrubs and compacts sealed segments, off the shards' loops.

Started by node/processes/supervisor.py only. Reads the sealed segments of a partition from its owner and reports to it
what the store has; opens segment files itself, which never change once sealed.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from functools import partial

from engine.cleaning.scrubber import ScrubbedPartition
from engine.cleaning.segment_check import Finding, SealedFile
from engine.compaction.compactor import CompactedPartition
from engine.directory.placement import shard_of
from engine.directory.topics import TopicRecord
from engine.log.epochs import EpochStart
from engine.runtime.clock import SystemClock
from engine.runtime.disk import RealDisk
from engine.runtime.pooled_disk import PooledDisk
from engine.tiering.shipping.local_log import LocalLog, SealedSegment
from engine.tiering.shipping.shipper import ShipperComponents, ShipperOptions
from engine.tiering.shipping.shippers import Shipping, TierStatistics
from engine.tiering.store.store import open_store
from gateway.links.link import Handler, handler
from gateway.links.link_client import LinkClient, listen
from gateway.metrics.process_metrics import process_handlers, process_text
from gateway.tracing.tracer import SpanRing
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
from node.process_calls import (
    EndOffset,
    FileFields,
    PartitionNumber,
    Ready,
    Repair,
    Scrubbed,
    SealedLog,
    TieredPartition,
)
from node.processes.liveness_watchdog import HEARTBEAT
from node.processes.process_parts import (
    STORE_THREADS,
    first_of,
    make_compactor,
    make_merge_lane,
    make_scrubber,
    new_id,
    segment_restorer,
    stop_event,
)
from node.processes.shard_compaction import RemotePartition
from node.setup.file_limit import within_file_limit
from node.setup.logs import set_up_logging
from node.setup.statsd import statsd_sender, texts_of_node
from node.setup.tracing import CollectorExport, span_handlers

NICENESS = 10
CALL_S = 10.0


async def run(task: ShardTask) -> None:
    """Ships and scrub until stopped."""
    set_up_logging(task.settings.log_level)
    settings = within_file_limit(task.settings)
    stop = stop_event()
    with ThreadPoolExecutor(STORE_THREADS, "penstock-store") as executor:
        opening = partial(open_store, task.store_url, identity=task.store_identity)
        store = await asyncio.get_running_loop().run_in_executor(executor, opening)
        disk = PooledDisk(RealDisk(), settings.log_files_max)
        merging = make_merge_lane(settings)
        components = ShipperComponents(store, disk, SystemClock(), random.Random(), new_id, executor, merging)
        options = ShipperOptions(idle_seconds=task.settings.tier_check_ms / 1000)
        shipping = Shipping(components, options, task.identity.cluster_id, writer=new_id())
        shards = [LinkClient(shard_socket(task.run_dir, index)) for index in range(task.count)]
        for caller in shards:
            caller.connect()
        supervisor_lost = asyncio.Event()
        served: dict[str, TopicRecord] = {}
        scrubber = make_scrubber(
            task.settings, disk, lambda: _scrubbed(served, shards), segment_restorer(store, disk, task.identity)
        )
        compactor = make_compactor(task.settings, disk, lambda: _compacted(served, shards))
        spans = SpanRing()
        export = CollectorExport(task.settings, spans, executor)

        def gauges() -> tuple[tuple[str, str, float], ...]:
            return (*shipping.gauges(), *spans.gauges())

        handlers = _handlers(shipping, shards, served, spans) | process_handlers(gauges)
        supervisor = LinkClient(supervisor_socket(task.run_dir), handlers, on_lost=supervisor_lost.set)
        statsd = statsd_sender(settings, texts_of_node(lambda: process_text(gauges), shards, supervisor), executor)
        server = await listen(worker_socket(task.run_dir), handlers)
        link = await connect_to_supervisor(supervisor)
        records, _ = await link.call("topics", task.index, timeout_s=CHANGE_S)
        for record in records_from(records):
            _add(shipping, shards, served, record)
        await link.call("ready", Ready(task.index, 0), timeout_s=CHANGE_S)
        scrubber.start()
        compactor.start()
        export.start()
        if statsd is not None:
            statsd.start()
        await first_of(stop.wait(), supervisor_lost.wait())
        server.close()
        if statsd is not None:
            statsd.stop()
        await export.stop()
        await compactor.stop()
        await scrubber.stop()
        await shipping.stop()
        for caller in (*shards, supervisor):
            caller.close()


def _handlers(
    shipping: Shipping, shards: list[LinkClient], served: dict[str, TopicRecord], spans: SpanRing
) -> dict[str, Handler]:
    async def open_topic(fields: RecordFields, _: bytes) -> tuple[None, bytes]:
        _add(shipping, shards, served, record_from(fields))
        return None, b""

    async def alter_topic(fields: RecordFields, _: bytes) -> tuple[None, bytes]:
        _add(shipping, shards, served, record_from(fields))
        return None, b""

    async def remove_topic(fields: RecordFields, _: bytes) -> tuple[None, bytes]:
        record = record_from(fields)
        served.pop(record.topic_id, None)
        shipping.remove_topic(record)
        return None, b""

    async def set_aside(fields: RecordFields, _: bytes) -> tuple[None, bytes]:
        record = record_from(fields)
        served.pop(record.topic_id, None)
        shipping.remove_partitions(record, record.local_partitions)
        return None, b""

    async def wake(which: PartitionNumber, _: bytes) -> tuple[None, bytes]:
        shipping.wake(which.topic_id, which.number)
        return None, b""

    async def statistics(which: PartitionNumber, _: bytes) -> tuple[TierStatistics, bytes]:
        return shipping.statistics(which.topic_id, which.number), b""

    topics = {"open_topic": open_topic, "altered": alter_topic, "removed": remove_topic, "set_aside": set_aside}
    return {
        **{name: handler(RecordFields, function) for name, function in topics.items()},
        **HEARTBEAT,
        **span_handlers(spans),
        "wake": handler(PartitionNumber, wake),
        "statistics": handler(PartitionNumber, statistics),
    }


def _add(shipping: Shipping, shards: list[LinkClient], served: dict[str, TopicRecord], record: TopicRecord) -> None:
    """Serve a topic's local partitions, and stop those that were reassigned."""
    old = served.get(record.topic_id)
    before = set() if old is None else set(old.local_partitions)
    served[record.topic_id] = record
    shipping.change(record)
    shipping.remove_partitions(record, before - set(record.local_partitions))
    for number in sorted(set(record.local_partitions) - before):
        owner = shards[shard_of(record.topic_id, number, len(shards))]
        shipping.add(record, number, _Source(owner, record, number))


def _scrubbed(served: dict[str, TopicRecord], shards: list[LinkClient]) -> list[ScrubbedPartition]:
    return [
        _RemotePartition(shards[shard_of(record.topic_id, number, len(shards))], record, number)
        for record in served.values()
        for number in record.local_partitions
    ]


def _compacted(served: dict[str, TopicRecord], shards: list[LinkClient]) -> list[CompactedPartition]:
    return [
        RemotePartition(shards[shard_of(record.topic_id, number, len(shards))], record, number)
        for record in served.values()
        if record.settings.is_compacted
        for number in record.local_partitions
    ]


class _RemotePartition:
    """Gives the scrubber a partition of a shard process."""

    def __init__(self, owner: LinkClient, record: TopicRecord, number: int) -> None:
        self.topic_id = record.topic_id
        self.topic = record.name
        self.number = number
        self._owner = owner
        self._partition_id = (record.topic_id, record.name, number)

    async def list_sealed_files(self) -> list[SealedFile]:
        files, _ = await self._owner.link().call("sealed_files", TieredPartition(*self._partition_id), timeout_s=CALL_S)
        return [SealedFile(*fields) for fields in files]

    async def report(self, file: SealedFile, finding: Finding) -> bool:
        fields = FileFields(*astuple(file))
        return await self._call(
            "scrubbed", Scrubbed(*self._partition_id, fields, finding.scrubbed_bytes, finding.damage)
        )

    async def repair(self, file: SealedFile, path: str) -> bool:
        return await self._call("repair", Repair(*self._partition_id, file.base_offset, path))

    async def _call(self, what: str, arguments: Scrubbed | Repair) -> bool:
        is_known, _ = await self._owner.link().call(what, arguments, timeout_s=CALL_S)
        return bool(is_known)


class _Source:
    """Gives the shipper a partition of a shard process."""

    def __init__(self, owner: LinkClient, record: TopicRecord, number: int) -> None:
        self._owner = owner
        self._partition_id = (record.topic_id, record.name, number)
        self._sent_end = 0

    async def local_log(self, above: int) -> LocalLog:
        owner = await self._owner.wait_connected_within(CALL_S)  # a shard that starts has not failed
        answer, _ = await owner.call("sealed_log", SealedLog(*self._partition_id, above), timeout_s=CALL_S)
        positions, sealed, known_end, retention, leader_epoch, epochs = answer
        if known_end < self._sent_end:  # the shard has restarted since
            await self.on_tiered(self._sent_end)
        segments = tuple(SealedSegment(*fields) for fields in sealed)
        starts = tuple(EpochStart(*fields) for fields in epochs)
        log_start, local_log_start, log_end, high_watermark, durable_end = positions
        active_bytes, retention_ms, retention_bytes, wait_max_ms = retention
        return LocalLog(
            *(log_start, local_log_start, log_end, high_watermark, durable_end),
            sealed=segments,
            active_bytes=active_bytes,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            wait_max_ms=wait_max_ms,
            leader_epoch=leader_epoch,
            epochs=starts,
        )

    async def raise_log_start(self, end_offset: int) -> int:
        log_start, _ = await self._owner.link().call(
            "expired", EndOffset(*self._partition_id, end_offset), timeout_s=CALL_S
        )
        return int(log_start)

    async def on_tiered(self, end_offset: int) -> None:
        await self._owner.link().call("tiered", EndOffset(*self._partition_id, end_offset), timeout_s=CALL_S)
        self._sent_end = end_offset


if __name__ == "__main__":
    os.nice(NICENESS)
    run_until_complete(run(ShardTask.read(sys.stdin.readline())))
