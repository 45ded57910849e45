"""Decodes and places the records of a produce to many topics: each record names its topic.

A body that cannot be read fails the whole request. Any other problem fails the records of one topic and partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.errors import EngineError
from engine.producers.append_validator import AppendConditions
from engine.shard.served_topics import Topic
from gateway.access.access import forbidden
from gateway.access.tokens_file import Right
from gateway.http import problems
from gateway.http.problems import Problem
from gateway.produce.appending import Part
from gateway.produce.context import ProduceContext
from gateway.produce.idempotency import KeyedRequest, KeyInFlight
from gateway.produce.incoming import IncomingRow
from gateway.produce.placing import Destination, check_count, count_of, encode, place
from gateway.produce.request import ProduceManyRequest


@dataclass(slots=True)
class _Rows:
    """The records of one topic, their places in the body, and how many partitions the topic must have for them."""

    rows: list[IncomingRow] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    partitions: int = 1


class _Target(NamedTuple):
    topic: Topic
    to: Destination
    rows: _Rows


async def place_by_topic(
    context: ProduceContext,
    wanted: ProduceManyRequest,
    body: bytes,
    now_ms: int,
    keyed: KeyedRequest | None,
    keys: AsyncExitStack,
) -> list[Part]:
    """Returns the parts of a body in the order of topics and partitions. `keys` releases the keys in flight.

    Raises Problem for a body that cannot be read, no_records, body_too_large.
    """
    by_topic = await context.offload.by_size(len(body), lambda: _by_topic(*wanted.decode(body)))
    check_count(sum(len(rows.rows) for rows in by_topic.values()), context.settings.records_per_request_max)
    if len(by_topic) > context.settings.produce_partitions_max:
        raise _too_many_partitions(len(by_topic), context)
    parts: list[Part] = []
    targets: list[_Target] = []
    for name, rows in by_topic.items():
        try:
            targets.append(await _target(context, wanted, name, rows, now_ms, keyed, keys))
        except EngineError as error:
            parts.append(Part(name, None, len(rows.rows), None, problem=problems.from_engine(error)))
        except Problem as problem:
            parts.append(Part(name, None, len(rows.rows), None, problem=problem))
    parts += await context.offload.by_size(len(body), lambda: [part for one in targets for part in _parts(one)])
    if len(parts) > context.settings.produce_partitions_max:
        raise _too_many_partitions(len(parts), context)
    return sorted(parts, key=lambda part: (part.topic_name, part.partition or 0))


def _by_topic(names: Sequence[str], rows: Sequence[IncomingRow]) -> Mapping[str, _Rows]:
    by_topic: dict[str, _Rows] = {}
    for position, (name, row) in enumerate(zip(names, rows, strict=True)):
        of_topic = by_topic.get(name)
        if of_topic is None:
            of_topic = by_topic[name] = _Rows()
        of_topic.rows.append(row)
        of_topic.positions.append(position)
        if row.partition is not None and row.partition >= of_topic.partitions:
            of_topic.partitions = row.partition + 1
    return by_topic


async def _target(
    context: ProduceContext,
    wanted: ProduceManyRequest,
    name: str,
    rows: _Rows,
    now_ms: int,
    keyed: KeyedRequest | None,
    keys: AsyncExitStack,
) -> _Target:
    """Returns the destination of the records of one topic. Raises Problem, EngineError."""
    if not wanted.caller.allows(Right.WRITE, name):
        raise forbidden(wanted.caller, Right.WRITE, name)
    await context.topics.look_for(name, rows.partitions)
    topic = await context.topics.to_produce_to(name)
    if keyed is not None:
        entry = await keys.enter_async_context(KeyInFlight(context, topic, keyed, now_ms))
        partitioner = context.partitioners.among(topic, entry.partitions)
        sticky = partitioner.for_request(entry.key_hash)
        return _Target(topic, Destination(partitioner, topic.settings, now_ms, sticky, key_entry=entry), rows)
    partitioner = context.partitioners.of(topic)
    sticky = partitioner.sticky(sum(len(row.value or b"") for row in rows.rows), context.clock.monotonic())
    return _Target(topic, Destination(partitioner, topic.settings, now_ms, sticky), rows)


def _parts(target: _Target) -> list[Part]:
    """Returns a part for each partition of a topic, with its batch or its problem."""
    topic, to, rows = target
    name, parts = topic.record.name, []
    conditions = None if to.key_entry is None else AppendConditions(key=to.key_entry)
    placed, refused = place(rows.rows, to, rows.positions)
    for partition, records in placed.items():
        problem, batch = refused.get(partition), None
        if problem is None:
            try:
                batch = encode(partition, records, to)
            except Problem as error:
                problem = error
            except EngineError as error:
                problem = problems.from_engine(error)
        data = b"" if batch is None else batch.data
        parts.append(Part(name, partition, count_of(records), topic, data, conditions, problem))
    return parts


def _too_many_partitions(count: int, context: ProduceContext) -> Problem:
    limit = context.settings.produce_partitions_max
    text = f"the request is for {count} topics and partitions, {limit} are allowed"
    return Problem("body_too_large", text, limit=limit)
