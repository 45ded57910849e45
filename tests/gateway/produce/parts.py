"""Parts of produces, and topics to place them in, for tests below the handlers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from engine.topic_settings import TopicSettings
from gateway.produce.batching import Part
from gateway.produce.context import ProduceContext
from gateway.produce.queue import Outcome, PendingOutcomes
from replication.replica.acks import Acks


def topic_of(settings: TopicSettings | None = None, name: str = "t") -> Any:
    """Return a topic without partitions."""
    return SimpleNamespace(record=SimpleNamespace(name=name), settings=settings or TopicSettings())


async def append(
    context: ProduceContext, parts: Sequence[Part], acks: Acks, now_ms: int, timeout_ms: int = 10_000
) -> Sequence[Outcome]:
    """Queue parts. Return the outcome of each."""
    pending = PendingOutcomes(context)
    pending.queue(parts, acks, timeout_ms, now_ms)
    return await pending
