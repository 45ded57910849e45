"""Appends the batches of one request, all queued without a pause between them, and tells what became of each.

An outcome is the positions, None when nobody waits for one (acks=0), or the problem that this batch met with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from engine.errors import EngineError
from engine.producers.append_validator import AppendConditions, Appended
from engine.shard.served_topics import Topic
from gateway.connections.request_order import OrderSlot
from gateway.http import problems
from gateway.http.problems import Problem
from gateway.produce.context import ProduceContext
from gateway.produce.placing import Batch
from gateway.routing.leader_failover import AnyLeader, PendingProduce
from replication.replica.acks import Acks

Outcome = Appended | Problem | None


class Part(NamedTuple):
    """A batch on its way to one partition of a topic, and on which terms."""

    topic: Topic
    batch: Batch
    conditions: AppendConditions | None = None


async def append(
    context: ProduceContext, parts: Sequence[Part], acks: Acks, timeout_ms: int | None, slot: OrderSlot
) -> list[Outcome]:
    """The outcome of each part, queued in its turn. Raises Problem overloaded, before anything is appended."""
    if not slot.is_next:
        await slot.come()
    check_capacity(context, sum(len(part.batch.data) for part in parts))
    timeout = timeout_ms or context.settings.produce_timeout_ms
    queued = [_queue(context, part, acks, timeout) for part in parts]
    slot.end()
    context.metrics.produce_records.inc(sum(part.batch.record_count for part in parts))
    began = time.perf_counter()
    context.metrics.waiting_produces.inc()
    try:
        if len(queued) == 1:
            return [await _acknowledge(queued[0])]
        return await asyncio.gather(*map(_acknowledge, queued))
    finally:
        context.metrics.waiting_produces.dec()
        context.stages.ack.observe(time.perf_counter() - began)


def check_capacity(context: ProduceContext, incoming_bytes: int) -> None:
    """Raises Problem overloaded if too many bytes wait for the disk: the client waits then, not our memory.

    Raises body_too_large for what does not fit an empty queue either: a retry could never succeed.
    """
    limit = context.settings.append_queue_bytes_max
    if incoming_bytes > limit:
        text = f"the batches of the request have {incoming_bytes} bytes, {limit} may wait for the disk"
        raise Problem("body_too_large", text, limit=limit)
    if context.queued_bytes() + incoming_bytes > limit:
        raise Problem("overloaded", "too many bytes wait for the disk")


def _queue(
    context: ProduceContext, part: Part, acks: Acks, timeout_ms: int
) -> Awaitable[Appended | None] | Problem | None:
    batch = part.batch
    try:
        if context.peers.nodes is not None:
            return context.failover.begin(_parcel(context, part, acks, timeout_ms))
        leader = context.partitions.leader(part.topic, batch.partition)
        if acks is Acks.NONE:
            leader.append_nowait(batch.data, part.conditions)
            return None
        return leader.produce(batch.data, acks, timeout_ms, part.conditions)
    except EngineError as error:
        return problems.from_engine(error)


def _parcel(context: ProduceContext, part: Part, acks: Acks, timeout_ms: int) -> PendingProduce:
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
    record, number = part.topic.record, part.batch.partition

    def find_leader() -> AnyLeader:
        return context.partitions.leader(part.topic, number)

    return PendingProduce(record.topic_id, number, part.batch.data, acks, part.conditions, deadline, find_leader)


async def _acknowledge(queued: Awaitable[Appended | None] | Problem | None) -> Outcome:
    if queued is None or isinstance(queued, Problem):
        return queued
    try:
        return await queued
    except EngineError as error:
        return problems.from_engine(error)


def demand_one_success(outcomes: Iterable[Outcome]) -> bool:
    """Whether all went well. Raises a Problem if nothing did: one that may have stored something, if there is one."""
    outcomes = list(outcomes)
    failed = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
    if len(failed) == len(outcomes):
        raise min(failed, key=lambda problem: bool(problem.document()["no_side_effects"]))
    return not failed


def result_of(partition: int | None, count: int, outcome: Outcome, now_ms: int, status: int | None) -> dict[str, Any]:
    """An entry of an answer; with the `status` that stands for success when others have failed."""
    result = {"partition": partition, "base_offset": None, "count": count, "timestamp": now_ms}
    if isinstance(outcome, Problem):
        return result | {"status": outcome.status, "problem": outcome.document()}
    if outcome is not None:
        result["base_offset"] = outcome.base_offset
        if outcome.is_duplicate:
            result |= {"count": outcome.record_count, "timestamp": outcome.timestamp_ms, "duplicate": True}
    return result if status is None else result | {"status": status}


def answer(
    document: dict[str, Any], status: int, outcomes: Iterable[Outcome], more_headers: dict[str, str]
) -> web.Response:
    """The answer to a produce, with a header of its own if nothing of it was stored anew."""
    is_duplicate = all(isinstance(outcome, Appended) and outcome.is_duplicate for outcome in outcomes)
    headers = _DUPLICATE_HEADERS if is_duplicate else _HEADERS
    if more_headers:
        headers = headers | more_headers
    return web.Response(status=status, body=orjson.dumps(document), headers=headers)


_HEADERS = {"Content-Type": "application/json"}
_DUPLICATE_HEADERS = {**_HEADERS, "Penstock-Duplicate": "true"}
