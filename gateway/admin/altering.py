"""Alters a topic: settings, partitions and replicas of one request, in an order in which each step is allowed.

`min_insync_replicas` of a topic must not exceed its replicas: so replicas grow before the settings change, and shrink
after. Errors that need no call to the cluster are raised before the first step.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.directory.topics import TopicRecord, changed_topic
from engine.format.paths import INTERNAL_TOPICS
from engine.shard.served_topics import Topic
from engine.topic_settings import check_applicable
from gateway.admin.context import AdminContext
from gateway.admin.operation_calls import ChangeReplicationFactor
from gateway.http.request import Request


def shown_record(record: TopicRecord) -> dict[str, object]:
    """Returns a topic as the audit trail shows it."""
    return {
        "topic_id": record.topic_id,
        "partitions": record.partitions,
        "replication_factor": record.replication_factor,
        "config": dict(record.overrides),
    }


async def alter(
    request: Request,
    context: AdminContext,
    name: str,
    overrides: Mapping[str, object],
    partitions: int | None,
    replication_factor: int | None,
) -> Topic:
    """Alters a topic. Raises UnknownTopic, InvalidConfig, Problem too_many_topics."""
    record = context.topics.topic(name).record
    changed = changed_topic(record, overrides, partitions)
    if name not in INTERNAL_TOPICS:
        check_applicable(overrides, changed.settings)
    after = shown_record(changed)
    if replication_factor is not None:
        after["replication_factor"] = replication_factor
    await request.intend(before=shown_record(record), after=after)
    is_growing = replication_factor is not None and replication_factor > record.replication_factor
    if replication_factor is not None and is_growing:
        await context.operate(ChangeReplicationFactor(name, replication_factor))
    if overrides or partitions is not None:
        await context.topics.alter(name, dict(overrides), partitions)
    if replication_factor is not None and not is_growing:
        await context.operate(ChangeReplicationFactor(name, replication_factor))
    return context.topics.topic(name)
