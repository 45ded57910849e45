"""Describes the partitions of a topic, including those whose leaders cannot be asked."""

from __future__ import annotations

import asyncio

from engine.directory.topics import TopicRecord
from engine.errors import EngineError
from engine.runtime.slices import in_slices
from engine.shard.served_topics import Topic
from gateway.admin.cluster_rows import PartitionRow, offline_row, topology_row
from gateway.admin.context import AdminContext
from gateway.admin.partition_calls import DESCRIBE
from replication.cluster.view import ClusterView

DESCRIBE_S = 0.5  # for a leader's answer, in addition to the budget for finding the leader


async def describe_partitions(context: AdminContext, topic: Topic, budget_ms: int | None) -> list[PartitionRow]:
    """Returns a row for each partition, without positions where the leader does not answer within the budget."""
    record, view = topic.record, context.peers.cluster
    answers = await context.router.collect_rows(DESCRIBE, record, _describe_s(context, budget_ms))
    rows: dict[int, PartitionRow] = {}
    async for number, row in in_slices(list(answers.items())):
        rows[number] = _with_topology(view, record.topic_id, number, row)
    left = [number for number in range(record.partitions) if number not in rows]
    described = await asyncio.gather(*(describe_partition(context, record, number, budget_ms) for number in left))
    rows.update(zip(left, described, strict=True))
    return [rows[number] for number in range(record.partitions)]


async def describe_partition(
    context: AdminContext, record: TopicRecord, number: int, budget_ms: int | None
) -> PartitionRow:
    """Returns the row of one partition, as `describe_partitions` does."""
    view = context.peers.cluster
    try:
        async with asyncio.timeout(_describe_s(context, budget_ms)):  # a node that hangs sends no error either
            row, _ = await context.router.call(DESCRIBE, record.name, number, None, budget_ms=budget_ms)
    except TimeoutError:
        return offline_row(view, record.topic_id, number)
    except EngineError as error:
        if not context.router.may_retry(error):
            raise
        return offline_row(view, record.topic_id, number)
    return _with_topology(view, record.topic_id, number, row)


def _with_topology(view: ClusterView, topic_id: str, number: int, row: PartitionRow | None) -> PartitionRow:
    return offline_row(view, topic_id, number) if row is None else {**row, **topology_row(view, topic_id, number)}


def _describe_s(context: AdminContext, budget_ms: int | None) -> float | None:
    """Returns how long to wait for a leader's answer; None: as long as any call, as no other leader can be elected."""
    if not context.peers.cluster.has_elections:
        return None
    return (context.settings.leader_wait_ms if budget_ms is None else budget_ms) / 1000 + DESCRIBE_S
