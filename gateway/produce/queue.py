"""Queues the batches of a request at their leaders, and collects the outcome of each.

All batches are queued without an await between them. Invariants: the outcomes are received also after the client has
left; a key is held until they are; nothing is raised into the append.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol, TypeVar

from engine.errors import EngineError
from engine.format.record_spans import first_without_key
from engine.producers.appends import Appended
from engine.runtime.pending import Pending
from gateway.http.problems import Problem, from_engine
from gateway.http.rights import Names
from gateway.produce.accumulator import Receiver
from gateway.produce.batching import Part
from gateway.produce.context import ProduceContext
from replication.replica.acks import Acks
from replication.replica.appends import AppendOutcome

T = TypeVar("T")

Outcome = Appended | Problem | None  # positions, the problem of a batch, or nothing with acks=0


class HeldKeys(Protocol):
    """The keys that a request holds until its outcomes are there."""

    def release(self) -> None: ...
    def with_window(self, error: Exception) -> Exception: ...


class PendingProduce(Pending[T]):
    """The parts of a request that are queued. A subclass makes the result of their outcomes."""

    __slots__ = ("_failure", "_left", "_outcomes", "context", "held", "queued_at")

    def __init__(self, context: ProduceContext, held: HeldKeys | None = None) -> None:
        super().__init__()
        self.context = context
        self.held = held

    def result(self, outcomes: Sequence[Outcome]) -> T:
        """Returns the result. Raises Problem."""
        raise NotImplementedError

    def count_abandoned(self, outcomes: Sequence[Outcome]) -> None:
        """Counts what is stored for a client that has left. Raises nothing."""

    def queue(self, parts: Sequence[Part], acks: Acks, timeout_ms: int, now_ms: int) -> None:
        """Queues all batches. Raises Problem overloaded, body_too_large with nothing queued."""
        context = self.context
        part = parts[0]
        if len(parts) == 1 and part.shared is not None:
            size_bytes, record_count = part.shared.size_bytes, part.record_count
        else:
            size_bytes = sum([len(part.batch) if part.shared is None else part.shared.size_bytes for part in parts])
            record_count = sum([part.record_count for part in parts if part.problem is None])
        waiting_bytes = context.queue.queued_bytes + context.accumulator.size_bytes
        self.queued_at = time.perf_counter()
        if waiting_bytes + size_bytes > context.settings.append_queue_bytes_max:
            raise no_room(context, size_bytes)
        context.metrics.produce_records.value += record_count
        context.metrics.delayed_produces.value += 1
        self._left = len(parts)
        self._failure: BaseException | None = None  # of a part: neither positions nor a problem
        self._outcomes: list[Outcome] = [None] * self._left
        if self._left > 1:
            for number, part in enumerate(parts):
                _queue(context, part, acks, timeout_ms, now_ms, partial(self.receive, number=number))
        elif part.shared is None or part.topic is None or part.partition is None:
            _queue(context, part, acks, timeout_ms, now_ms, self.receive)
        else:
            context.accumulator.join(part.topic, part.partition, part.shared, acks, timeout_ms, now_ms, self.receive)

    def receive(self, outcome: AppendOutcome | BaseException | None, number: int = 0) -> None:
        """Takes the outcome of a part; without a number, of the only one."""
        if type(outcome) is Appended:
            if outcome.source_position is not None:
                outcome = _source_stored(outcome.source_position)
        elif isinstance(outcome, EngineError):
            outcome = from_engine(outcome)
        elif isinstance(outcome, BaseException) and not isinstance(outcome, Problem):  # a bug, or the process stops
            self._failure = outcome
            outcome = None
        self._outcomes[number] = outcome  # type: ignore[assignment]  # AppendedApart is divided by its batch
        self._left -= 1
        if self._left:
            return
        context = self.context
        context.metrics.delayed_produces.value -= 1
        context.stages.ack.observe(time.perf_counter() - self.queued_at)
        if self.held is not None:
            self.held.release()
        if self.is_over:  # the client has left
            self.count_abandoned(self._outcomes)
            return
        if self._failure is not None:
            self.complete(self._failure)
            return
        try:
            result = self.result(self._outcomes)
        except Exception as error:
            self.complete(error if self.held is None else self.held.with_window(error))
        else:
            self.complete(result)


def stored_records(parts: Sequence[Part], outcomes: Sequence[Outcome]) -> int:
    """Returns how many records are stored, without those that an earlier request has stored."""
    stored = 0
    for part, outcome in zip(parts, outcomes, strict=True):
        if outcome is None or (type(outcome) is Appended and not outcome.is_duplicate):
            stored += part.record_count
    return stored


def count_abandoned(
    space: Names | None, context: ProduceContext, parts: Sequence[Part], outcomes: Sequence[Outcome]
) -> None:
    """Counts the records of a tenant's produce that are stored though its client has left."""
    if space is not None and (stored := stored_records(parts, outcomes)):
        context.usage.count_records(space.tenant, stored, time.perf_counter())


class PendingOutcomes(PendingProduce[Sequence[Outcome]]):
    """Parts whose outcomes are the result. With a `space`, the stored records of its tenant are counted."""

    __slots__ = ("_parts", "_space")

    def __init__(self, context: ProduceContext, space: Names | None = None, parts: Sequence[Part] = ()) -> None:
        super().__init__(context)
        self._space = space
        self._parts = parts

    def result(self, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        self.count_abandoned(outcomes)
        return outcomes

    def count_abandoned(self, outcomes: Sequence[Outcome]) -> None:
        if self._space is not None:
            count_abandoned(self._space, self.context, self._parts, outcomes)


def _queue(context: ProduceContext, part: Part, acks: Acks, timeout_ms: int, now_ms: int, receive: Receiver) -> None:
    topic, partition, shared = part.topic, part.partition, part.shared
    if part.problem is not None:
        receive(part.problem)
        return
    assert topic is not None, part
    assert partition is not None, part
    if shared is not None:
        context.accumulator.join(topic, partition, shared, acks, timeout_ms, now_ms, receive)
        return
    context.accumulator.close(topic.record.topic_id, partition)
    try:
        leader = context.partitions.leader(topic, partition)
        append = leader.produce_all([(part.batch, part.conditions, None)], acks, timeout_ms)[0]
    except Exception as error:
        receive(error)
    else:
        append.then(receive)


def check_keys(part: Part) -> None:
    """Checks that each record of a part for a compacted topic has a key: compaction keeps the last record of each key.

    Raises Problem key_required.
    """
    topic = part.topic
    assert topic is not None
    number: int | None
    if part.shared is not None:
        number = next((number for number, (_, key, *_) in enumerate(part.shared.rows) if key is None), None)
    else:
        number = first_without_key(part.batch, topic.settings.batch_decoded_bytes_max)
    if number is not None:
        text = (
            f"record {number} for partition {part.partition} of {part.topic_name!r} has no key: the topic is compacted"
        )
        raise Problem("key_required", text, topic=part.topic_name, partition=part.partition)


def needs_keys(part: Part) -> bool:
    """Returns whether `check_keys` is to be called for a part."""
    return part.topic is not None and part.problem is None and part.topic.settings.cleanup_policy != "delete"


def no_room(context: ProduceContext, incoming_bytes: int) -> Problem:
    """Returns the problem of batches that exceed the queue of bytes that wait for the disk.

    It is final for those that would exceed an empty queue too.
    """
    limit = context.settings.append_queue_bytes_max
    if incoming_bytes > limit:
        text = f"the batches of the request have {incoming_bytes} bytes, {limit} may wait for the disk"
        return Problem("body_too_large", text, limit=limit)
    return Problem("overloaded", "too many bytes wait for the disk")


def _source_stored(position: int) -> Problem:
    text = f"the outputs up to position {position} of the source are stored; send those of later ones"
    return Problem("source_position_stored", text, source_position=position)
