"""The calls of other processes of the node or the cluster: appends, and look-ups of keys."""

from __future__ import annotations

from typing import Any

from engine.producers.append_validator import Appended, conditions_of
from engine.producers.partition_keys import FoundKey
from gateway.links.link import Handler
from gateway.produce.appending import no_room
from gateway.produce.context import ProduceContext
from gateway.produce.idempotency import find_in_partitions
from replication.replica.acks import ACKS_BY_WORD, Acks


def append_handlers(context: ProduceContext) -> dict[str, Handler]:
    """Returns the handlers by the name of the call. New arguments are appended, for calls between two versions."""

    async def append(arguments: Any, payload: bytes) -> tuple[Appended | None, bytes]:
        topic_id, topic, number, epoch, acks_word, timeout_ms, fields, *_ = arguments
        context.lifecycle.check_accepting()
        if context.queue.queued_bytes + len(payload) > context.settings.append_queue_bytes_max:
            raise no_room(context, len(payload))
        leader = context.partitions.replica(context.partitions.owned_partition(topic, topic_id, number, epoch))
        acks = ACKS_BY_WORD[acks_word]
        conditions = conditions_of(fields)
        if acks is Acks.NONE:
            leader.append_nowait(payload, conditions)
            return None, b""
        return await leader.produce(payload, acks, timeout_ms, conditions), b""

    async def check_append(arguments: Any, _: bytes) -> tuple[None, bytes]:
        topic_id, topic, number, epoch, acks_word, *_rest = arguments
        context.lifecycle.check_accepting()
        leader = context.partitions.replica(context.partitions.owned_partition(topic, topic_id, number, epoch))
        leader.check_append(ACKS_BY_WORD[acks_word])
        return None, b""

    async def find_key(arguments: Any, _: bytes) -> tuple[FoundKey | None, bytes]:
        topic_name, topic_id, numbers, key_hash, request_hash, *_rest = arguments
        now_ms = context.clock.steady_ms()
        if context.peers.view is None:
            topic = context.topics.get(topic_name)
            if topic is None or topic.record.topic_id != topic_id:
                return None, b""
            return find_in_partitions(topic.partitions.values(), key_hash, request_hash, now_ms), b""
        partitions = [context.partitions.owned_partition(topic_name, topic_id, number) for number in numbers]
        return find_in_partitions(partitions, key_hash, request_hash, now_ms), b""

    return {"append": append, "check_append": check_append, "find_key": find_key}
