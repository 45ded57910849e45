"""The calls of other processes of the node or the cluster: appends, and look-ups of keys."""

from __future__ import annotations

import asyncio

from engine.producers.appends import Appended, conditions_of
from engine.producers.partition_keys import FoundKey
from gateway.links.link import Handler, handler
from gateway.produce.appending import no_room
from gateway.produce.context import ProduceContext
from gateway.produce.idempotency import find_in_partitions
from gateway.routing.calls import AppendArguments, CheckAppendArguments, FindKeyArguments
from replication.replica.acks import Acks
from replication.replica.replicas import AnyReplica
from replication.replica.standalone import StandaloneReplica


def append_handlers(context: ProduceContext) -> dict[str, Handler]:
    """Returns the handlers by the name of the call."""

    def leader_for(arguments: AppendArguments, payload: bytes) -> AnyReplica:
        context.lifecycle.check_accepting()
        if context.queue.queued_bytes + len(payload) > context.settings.append_queue_bytes_max:
            raise no_room(context, len(payload))
        return owned_replica(arguments)

    def begin_append(arguments: AppendArguments, payload: bytes) -> asyncio.Future[Appended] | None:
        leader = leader_for(arguments, payload)
        if arguments.acks is not Acks.LEADER or not isinstance(leader, StandaloneReplica):
            return None
        return leader.begin(payload, arguments.timeout_ms, conditions_of(arguments.conditions))

    async def append(arguments: AppendArguments, payload: bytes) -> tuple[Appended | None, bytes]:
        leader = leader_for(arguments, payload)
        acks, conditions = arguments.acks, conditions_of(arguments.conditions)
        if acks is Acks.NONE:
            leader.append_nowait(payload, conditions)
            return None, b""
        return await leader.produce(payload, acks, arguments.timeout_ms, conditions), b""

    async def check_append(arguments: CheckAppendArguments, _: bytes) -> tuple[None, bytes]:
        context.lifecycle.check_accepting()
        owned_replica(arguments).check_append(arguments.acks)
        return None, b""

    async def find_key(arguments: FindKeyArguments, _: bytes) -> tuple[FoundKey | None, bytes]:
        topic_id, key_hash, request_hash = arguments.topic_id, arguments.key_hash, arguments.request_hash
        now_ms = context.clock.steady_ms()
        if context.peers.view is None:
            topic = context.topics.get(arguments.topic)
            if topic is None or topic.record.topic_id != topic_id:
                return None, b""
            return find_in_partitions(topic.partitions.values(), key_hash, request_hash, now_ms), b""
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
