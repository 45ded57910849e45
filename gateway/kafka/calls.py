"""The calls between the processes of a node that Kafka's protocol needs."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.fetch.context import ReadContext
from gateway.kafka.positions import position_calls
from gateway.kafka.stored_reads import stored_read_handlers
from gateway.kafka.transactions import producer_calls
from gateway.links.link import Handler
from gateway.routing.router import Answering


def kafka_calls(context: ReadContext) -> list[Answering]:
    """Returns the calls to partitions of this process."""
    return [*position_calls(context), *producer_calls(context)]


def kafka_handlers(context: ReadContext) -> Mapping[str, Handler]:
    """Returns the handlers of calls to this process, by name."""
    return stored_read_handlers(context)
