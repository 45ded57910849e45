"""The calls of other processes of the node or the cluster: appends, and look-ups of keys."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from engine.producers.appends import conditions_of
from engine.producers.partition_keys import FoundKey
from gateway.links.link import Handler, handler
from gateway.produce.context import ProduceContext
from gateway.produce.idempotency import find_in_partitions
from gateway.produce.queue import no_room
from gateway.produce.spans import note_append
from gateway.routing.calls import AppendArguments, CheckAppendArguments, FindKeyArguments
from gateway.tracing.current import current
from replication.replica.appends import AppendOutcome
from replication.replica.replicas import AnyReplica


def append_handlers(context: ProduceContext) -> dict[str, Handler]:
    """Returns the handlers by the name of the call."""

    def leader_for(arguments: AppendArguments, payload: bytes) -> AnyReplica:
        context.lifecycle.check_accepting()
        if context.queue.queued_bytes + len(payload) > context.settings.append_queue_bytes_max:
            raise no_room(context, len(payload))
        return owned_replica(arguments)

    def begin_append(arguments: AppendArguments, payload: bytes) -> asyncio.Future[AppendOutcome | None]:
        leader, conditions = leader_for(arguments, payload), conditions_of(arguments.conditions)
        future = leader.produce(payload, arguments.acks, arguments.timeout_ms, conditions).future()
        if (span := current.span) is not None:
            future.add_done_callback(partial(note_append, span, context, arguments, time.perf_counter()))
        return future

    async def append(arguments: AppendArguments, payload: bytes) -> tuple[AppendOutcome | None, bytes]:
        return await begin_append(arguments, payload), b""

    async def check_append(arguments: CheckAppendArguments, _: bytes) -> tuple[None, bytes]:
        context.lifecycle.check_accepting()
        owned_replica(arguments).check_append(arguments.acks)
        return None, b""

    async def find_key(arguments: FindKeyArguments, _: bytes) -> tuple[FoundKey | None, bytes]:
        topic_id, key_hash, request_hash = arguments.topic_id, arguments.key_hash, arguments.request_hash
        now_ms = context.clock.steady_ms()
        partitions = [
            context.partitions.owned_partition(arguments.topic, topic_id, number) for number in arguments.partitions
        ]
        return find_in_partitions(partitions, key_hash, request_hash, now_ms), b""

    def owned_replica(which: AppendArguments | CheckAppendArguments) -> AnyReplica:
        partitions = context.partitions
        return partitions.replica(
            partitions.owned_partition(which.topic, which.topic_id, which.partition, which.leader_epoch)
        )

    return {
        "append": handler(AppendArguments, append, begin_append),
        "check_append": handler(CheckAppendArguments, check_append),
        "find_key": handler(FindKeyArguments, find_key),
    }
