"""Stores records that a receiver did not take in the dead-letter topic of their subscription."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.errors import EngineError
from engine.format import batch as record_batch
from engine.runtime.clock import Clock
from gateway.fetch.record_json import Undecodable
from gateway.groups.model.values import Slot
from gateway.http.problems import Problem
from gateway.produce.batching import Part
from gateway.produce.context import ProduceContext
from gateway.produce.partitioner import kafka_hash
from gateway.produce.queue import PendingOutcomes, check_keys, needs_keys
from gateway.routing.partitions import check_not_internal
from gateway.subscriptions.rendering import Pushed
from replication.replica.acks import Acks

TIMEOUT_MS = 30_000


class Reason(NamedTuple):
    """Why the records are given up, and where they come from."""

    subscription: str
    attempts: int
    error: str
    origin: Slot
    topic_id: str


class DeadLetters:
    """Appends records as they were, with further headers `dead-letter-*`."""

    def __init__(self, produce: ProduceContext, clock: Clock) -> None:
        self._produce = produce
        self._clock = clock

    async def store(self, topic: str, records: Sequence[Pushed], reason: Reason) -> str:
        """Returns an error, or nothing once the records are committed. Internal topics take none."""
        now_ms = self._clock.now_ms()
        try:
            check_not_internal(topic)
            target = self._produce.topics.topic(topic)
            rows: dict[int, list[record_batch.RowFields]] = {}
            for record in records:
                key = None if isinstance(record, Undecodable) else record.key
                value = None if isinstance(record, Undecodable) else record.value
                headers = [] if isinstance(record, Undecodable) else list(record.headers)
                number = (0 if key is None else kafka_hash(bytes(key))) % target.record.partitions
                rows.setdefault(number, []).append((now_ms, key, value, headers + _headers(record.offset, reason)))
            parts = [Part(topic, number, len(some), target, record_batch.encode(some)) for number, some in rows.items()]
            for part in parts:
                if needs_keys(part):
                    check_keys(part)
            pending = PendingOutcomes(self._produce)
            pending.queue(parts, Acks.ALL, TIMEOUT_MS, now_ms)
            outcomes = await pending
        except (EngineError, Problem) as error:
            return f"dead-letter topic {topic!r}: {error}"
        return next((str(outcome) for outcome in outcomes if isinstance(outcome, Problem)), "")


def _headers(offset: int, reason: Reason) -> list[tuple[str, bytes | None]]:
    texts = {
        "subscription": reason.subscription,
        "reason": reason.error,
        "attempts": str(reason.attempts),
        "topic": reason.origin.topic,
        "topic-id": reason.topic_id,
        "partition": str(reason.origin.partition),
        "offset": str(offset),
    }
    return [(f"dead-letter-{name}", text.encode()) for name, text in texts.items()]
