"""Notes in a span when the stages of a produce ended. Called for sampled requests only, once all outcomes are there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from engine.producers.appends import Appended
from gateway.produce.batching import Part
from gateway.produce.context import ProduceContext
from gateway.produce.queue import Outcome, PendingProduce
from gateway.routing.calls import AppendArguments
from gateway.tracing import conventions
from gateway.tracing.span import Span
from replication.errors import NoLeader
from replication.replica.acks import Acks


def note_produce(
    span: Span,
    pending: PendingProduce[Any],
    began: float,
    parts: Sequence[Part],
    outcomes: Sequence[Outcome],
    acks: Acks,
) -> None:
    """Notes the stages of a request. `began`: its body was there, and its records were decoded."""
    span.event("body", began)
    span.event("decode", pending.queued_at)
    if any(_is_local(pending.context, part) for part in parts):
        _note_commit(span, pending.context, pending.queued_at)
    span.event("ack", time.perf_counter())
    attributes = span.attributes
    attributes[conventions.ACKS] = acks.value
    attributes[conventions.RECORDS] = sum(part.record_count for part in parts)
    attributes[conventions.PARTITIONS] = len(parts)
    part, outcome = parts[0], outcomes[0]
    if len(parts) == 1 and part.partition is not None:
        attributes[conventions.PARTITION] = str(part.partition)
        if type(outcome) is Appended:
            attributes[conventions.BASE_OFFSET] = outcome.base_offset


def note_append(
    span: Span, context: ProduceContext, arguments: AppendArguments, queued_s: float, _: asyncio.Future[Any]
) -> None:
    """Notes the stages of an append of another process."""
    _note_commit(span, context, queued_s)
    span.event("ack", time.perf_counter())
    span.attributes[conventions.TOPIC] = arguments.topic
    span.attributes[conventions.PARTITION] = str(arguments.partition)


def _is_local(context: ProduceContext, part: Part) -> bool:
    if part.topic is None or part.partition is None:
        return False
    try:
        return context.peers.is_owned_here(part.topic.record.topic_id, part.partition)
    except NoLeader:
        return False


def _note_commit(span: Span, context: ProduceContext, queued_s: float) -> None:
    """Notes when the group commit of an append began, had written, and had synced.

    The committer's clock and `perf_counter` are one clock where nodes run (CLOCK_MONOTONIC).
    """
    group = context.queue.times.group_of(queued_s)
    if group is None:
        return
    began_s, write_s, sync_s = group
    span.event("queue", began_s)
    span.event("append", began_s + write_s)
    if sync_s is not None:
        span.event("flush", began_s + write_s + sync_s)
