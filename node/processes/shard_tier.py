"""The tiered store as a shard uses it: reads records from it, and answers the worker, which ships and scrubs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import suppress

from msgspec import structs

from engine.cleaning.quarantine import sealed_files
from engine.cleaning.segment_check import Finding, SealedFile
from engine.directory.topics import TopicRecord
from engine.errors import UnknownTopic
from engine.partition.partition import Partition
from engine.partition.reader import Chunk
from engine.partition.spool import Spool
from engine.shard.shard import Shard
from engine.tiering.reading.remote_logs import RemoteLogs
from engine.tiering.shipping.shippers import TierStatistics
from engine.tiering.tier import local_log
from gateway.links.link import Answer, Busy, Handler, LinkLost, handler
from gateway.links.link_client import LinkClient
from node.process_calls import EndOffset, PartitionNumber, Repair, Scrubbed, SealedLog, TieredPartition
from node.processes.shard_compaction import compaction_handlers

STATISTICS_S = 5.0


class ShardTier:
    """Reads the tiered store for a shard; the worker process ships to it."""

    def __init__(self, logs: RemoteLogs, worker: LinkClient, store_url: str, spool: Spool) -> None:
        self.store_url = store_url
        self.spool = spool
        self._logs = logs
        self._worker = worker
        self._topic_ids: dict[Partition, str] = {}
        self._shards: dict[Partition, Shard] = {}

    def __repr__(self) -> str:
        return f"ShardTier({self._logs})"

    def add(self, shard: Shard, topic: TopicRecord, partition: Partition) -> None:
        self._topic_ids[partition], self._shards[partition] = topic.topic_id, shard
        self._logs.add(topic, partition.number)

    def remove_topic(self, topic: TopicRecord, partitions: list[Partition]) -> None:
        self.remove_partitions(topic, partitions)

    def remove_partitions(self, topic: TopicRecord, partitions: list[Partition]) -> None:
        for partition in partitions:
            self._topic_ids.pop(partition, None)
            self._shards.pop(partition, None)
            self.spool.drop(partition)
        self._logs.remove(topic, [partition.number for partition in partitions])

    def wake_shipper(self, partition: Partition) -> None:
        """Wakes the shipper. A missed wake-up delays shipping by at most `tier_check_ms`."""
        if partition not in self._shards:
            return
        self.spool.count(partition, is_led=self._shards[partition].leading_epoch(partition) is not None)
        with suppress(Busy, LinkLost):
            self._worker.link().begin("wake", PartitionNumber(self._topic_ids[partition], partition.number))

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each number for /metrics."""
        yield from self.spool.gauges()
        yield from self._logs.gauges()

    def tiered_end(self, partition: Partition) -> int:
        return self.spool.tiered_end(partition)

    async def statistics(self, partition: Partition) -> TierStatistics:
        arguments = PartitionNumber(self._topic_ids[partition], partition.number)
        fields, _ = await self._worker.link().call("statistics", arguments, timeout_s=STATISTICS_S)
        return TierStatistics(*fields)

    async def read(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        return await self._logs.read(self._topic_ids[partition], partition.number, offset, max_bytes)

    async def first_at_or_after(self, partition: Partition, timestamp: int) -> tuple[int, int] | None:
        return await self._logs.first_at_or_after(self._topic_ids[partition], partition.number, timestamp)

    def handlers(self, shard: Shard) -> dict[str, Handler]:
        """Returns the handlers for calls of the worker."""

        def partition_of(which: TieredPartition) -> Partition:
            partition = shard.partition(which.topic, which.number)
            if self._topic_ids.get(partition) != which.topic_id:
                raise UnknownTopic(f"there is no topic {which.topic!r} of that id")
            return partition

        async def describe_log(request: SealedLog, _: bytes) -> Answer:
            partition = partition_of(request)
            if partition.offline is not None:
                raise partition.offline
            leader_epoch = shard.leading_epoch(partition)
            self.spool.count(partition, is_led=leader_epoch is not None)
            log = local_log(partition, leader_epoch, request.above)
            sealed = [dataclasses.astuple(segment) for segment in log.sealed]
            retention = (log.active_bytes, log.retention_ms, log.retention_bytes, log.wait_max_ms)
            positions = (log.log_start, log.local_log_start, log.log_end, log.high_watermark, log.durable_end)
            known_end = self.tiered_end(partition)
            return (positions, sealed, known_end, retention, log.leader_epoch, log.epochs), b""

        async def note_tiered(stored: EndOffset, _: bytes) -> tuple[None, bytes]:
            partition = partition_of(stored)
            is_led = shard.leading_epoch(partition) is not None
            self.spool.note_tiered(partition, stored.end_offset, is_led=is_led)
            return None, b""

        async def raise_log_start(removed: EndOffset, _: bytes) -> tuple[int, bytes]:
            return await shard.raise_log_start(partition_of(removed), removed.end_offset), b""

        async def files_to_scrub(which: TieredPartition, _: bytes) -> Answer:
            return [dataclasses.astuple(file) for file in sealed_files(partition_of(which))], b""

        async def record_finding(result: Scrubbed, _: bytes) -> tuple[bool, bytes]:
            file = SealedFile(*structs.astuple(result.file))
            finding = Finding(result.scrubbed_bytes, result.damage)
            return await quarantine.record(partition_of(result), file, finding), b""

        async def repair(copy: Repair, _: bytes) -> tuple[bool, bytes]:
            return await quarantine.repair(partition_of(copy), copy.base_offset, copy.path), b""

        quarantine = shard.quarantine
        return {
            **compaction_handlers(shard.segment_swapper, partition_of),
            "sealed_log": handler(SealedLog, describe_log),
            "tiered": handler(EndOffset, note_tiered),
            "expired": handler(EndOffset, raise_log_start),
            "sealed_files": handler(TieredPartition, files_to_scrub),
            "scrubbed": handler(Scrubbed, record_finding),
            "repair": handler(Repair, repair),
        }
