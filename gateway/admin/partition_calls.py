"""Administers one partition at its owner: describes it, rolls its segment, deletes its oldest records, sets its fence,
finds a source.

Any process can make these calls over a link.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from engine.format.control_batch import encode_fence
from engine.partition.partition import Partition
from engine.producers.appends import AppendConditions, Appended
from engine.producers.fencing import Fence
from gateway.admin.cluster_rows import PartitionRow
from gateway.admin.context import OwnerContext
from gateway.http.problems import Problem
from gateway.routing.router import Answering, PartitionCall
from replication.replica.acks import Acks

Document = dict[str, object]


class SetFence(NamedTuple):
    """The token to set, and the present token that is expected; None: any."""

    token: str
    expected: str | None


DESCRIBE: PartitionCall[None, PartitionRow] = PartitionCall("describe", None)
TIER_STATUS: PartitionCall[None, Document] = PartitionCall("tier_status", None)
ROLL: PartitionCall[None, dict[str, int]] = PartitionCall("roll", None, is_batched=True)
DELETE_BEFORE: PartitionCall[int, Document] = PartitionCall("delete_before", int)
FENCE: PartitionCall[None, Document] = PartitionCall("fence", None)
SET_FENCE: PartitionCall[SetFence, Document] = PartitionCall("set_fence", SetFence, is_change=True)
SOURCE: PartitionCall[bytes, Document] = PartitionCall("source", bytes)


async def describe(context: OwnerContext, partition: Partition, _: None) -> tuple[PartitionRow, bytes]:
    """Returns a partition's row in the description of its topic."""
    positions, leader = partition.statistics(), context.partitions.replica(partition)
    described: PartitionRow = {
        "partition": partition.number,
        "leader": context.settings.node_id,
        "replicas": [context.settings.node_id],
        "in_sync": leader.in_sync,
        "eligible": [],
        "under_replicated": False,
        "lag": leader.lag,
        "lag_bytes": {node: partition.log.bytes_from(partition.log_end - lag) for node, lag in leader.lag.items()},
        "leader_epoch": positions.leader_epoch,
        "log_start": positions.log_start,
        "local_log_start": positions.local_log_start,
        "log_end": positions.log_end,
        "durable_end": positions.durable_end,
        "high_watermark": positions.high_watermark,
        "size_bytes": positions.size_bytes,
        "segments": positions.segments,
        "leader_url": context.peers.direct_url,
    }
    if partition.offline is not None:
        described["offline"] = str(partition.offline)
    return described, b""


async def tier_status(context: OwnerContext, partition: Partition, _: None) -> tuple[Document, bytes]:
    """Returns a partition's row in the status of the store."""
    positions, tiered = partition.statistics(), await context.tier.statistics(partition)
    document: dict[str, object] = {
        "partition": partition.number,
        "log_start": positions.log_start,
        "local_log_start": positions.local_log_start,
        "sealed_end": positions.sealed_end,
        "tiered_end": tiered.tiered_end,
        "high_watermark": positions.high_watermark,
        "objects": tiered.objects,
        "tiered_bytes": tiered.tiered_bytes,
        "pending_segments": tiered.pending_segments,
        "pending_bytes": tiered.pending_bytes,
        "last_error": tiered.last_error,
    }
    return document, b""


async def roll(context: OwnerContext, partition: Partition, _: None) -> tuple[dict[str, int], bytes]:
    """Rolls the active segment."""
    return {"partition": partition.number, "sealed_end": await context.shard.committer.roll(partition)}, b""


async def delete_before(context: OwnerContext, partition: Partition, offset: int) -> tuple[Document, bytes]:
    """Deletes the records below an offset. Checks leadership: a replaced leader would delete from its own log only."""
    await context.partitions.replica(partition).confirm_leading()
    log_start = await context.shard.delete_before(partition, offset)
    return {"topic": partition.topic, "partition": partition.number, "log_start": log_start}, b""


async def fence(context: OwnerContext, partition: Partition, _: None) -> tuple[Document, bytes]:
    """Returns the token that the partition demands of every append. Raises the partition's error if it is offline."""
    if partition.offline is not None:
        raise partition.offline
    return _fence_fields(partition, partition.validator.fencing.present), b""


async def set_fence(context: OwnerContext, partition: Partition, change: SetFence) -> tuple[Document, bytes]:
    """Sets the token; an empty one removes it. If `expected` is given, it must be the present token.

    Idempotent: a token that is in force already is not appended again. Raises the partition's error if it is offline.
    """
    context.lifecycle.check_accepting()
    if partition.offline is not None:
        raise partition.offline
    leader, present = context.partitions.replica(partition), partition.validator.fencing.present
    if present.token == change.token:
        await leader.confirm_leading()  # another leader may have another token in force
    else:
        await context.shard.mark_fenced(partition)
        batch = encode_fence(change.token, context.clock.now_ms())
        conditions, timeout_ms = AppendConditions(fencing_token=change.expected), context.settings.produce_timeout_ms
        appended = await leader.produce(batch, Acks.ALL, timeout_ms, conditions)
        assert isinstance(appended, Appended)
        present = Fence(change.token, appended.base_offset)
    return _fence_fields(partition, present), b""


async def source(context: OwnerContext, partition: Partition, source_hash: bytes) -> tuple[Document, bytes]:
    """Returns the last position of a source whose outputs are committed.

    Raises Problem unknown_source, AckTimeout, NotLeader, and the partition's error if it is offline.
    """
    if partition.offline is not None:
        raise partition.offline
    leader = context.partitions.replica(partition)
    await leader.confirm_leading()
    positions = partition.validator.sources.find(source_hash)
    if positions is None:
        raise Problem("unknown_source", f"{partition.name} remembers no position of this source")
    latest, written = positions.latest, asyncio.get_running_loop().create_future()
    written.set_result(Appended(latest.base_offset, latest.record_count))
    await leader.acknowledge(written, Acks.ALL, context.settings.produce_timeout_ms)
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "source_position": latest.last,
        "base_offset": latest.base_offset,
        "count": latest.record_count,
        "timestamp": latest.time_ms,
    }, b""


def _fence_fields(partition: Partition, fence: Fence) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "token": fence.token or None,
        "offset": None if fence.offset < 0 else fence.offset,
    }


def partition_calls(context: OwnerContext) -> list[Answering]:
    """Returns the operators' calls to partitions of this process."""
    return [
        DESCRIBE.by(partial(describe, context)),
        TIER_STATUS.by(partial(tier_status, context)),
        ROLL.by(partial(roll, context)),
        DELETE_BEFORE.by(partial(delete_before, context)),
        FENCE.by(partial(fence, context)),
        SET_FENCE.by(partial(set_fence, context)),
        SOURCE.by(partial(source, context)),
    ]
