"""Produce: each partition of a request is an append of its own, through the stages that HTTP's stored batches take.

A batch is checked and stamped, and never decoded into records or encoded again. All batches of a request are queued in
one call, and a connection's requests in their order. Most requests need no task.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from engine.errors import EngineError, InvalidBatch, QuotaExhausted
from engine.format import batch as record_batch
from engine.format.batch_header import CONTROL, HEADER_BYTES, Codec, has_append_time, read_header
from engine.producers.appends import Appended
from engine.shard.served_topics import Topic
from gateway.http.problems import Problem, from_engine
from gateway.http.rights import Operation
from gateway.kafka.cluster import brokers, find_topic, find_topic_by_key, is_of_this_node, leadership, may_know
from gateway.kafka.codec.messages import Malformed
from gateway.kafka.codec.produce import LEADER_VERSION, Key, ProduceAnswer, ProduceRow
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error, error_of
from gateway.kafka.requests import KafkaRequest
from gateway.produce.batching import Destination, Part
from gateway.produce.queue import (
    Outcome,
    PendingProduce,
    check_keys,
    count_abandoned,
    needs_keys,
    stored_records,
)
from gateway.produce.spans import note_produce
from gateway.produce.stored_batch import stored_batch, stored_batch_now
from replication.replica.acks import Acks

ACKS = {0: Acks.NONE, 1: Acks.LEADER, -1: Acks.ALL}
ZSTD_VERSION = 7
BUSY_MS = 100  # a client is not read for this long after its records found no room
NO_OFFSET = -1
_TRANSACTIONAL = 0b1_0000
_OF_RECORDS = (Error.INVALID_RECORD, Error.INVALID_TIMESTAMP)
_OF_SEQUENCES = (
    Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.DUPLICATE_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH
)  # fmt: skip
_new = tuple.__new__
_RECORD_NUMBER = re.compile(r"record (\d+) ")  # of a text about a batch


class Refusal(NamedTuple):
    """Why a batch is not appended, and a text for people."""

    error: Error
    text: str | None = None


class Entry(NamedTuple):
    """One partition of a request: its batch as it was sent. `refusal` is set if it cannot be appended."""

    key: Key
    number: int
    topic: Topic | None
    batch: bytes | bytearray
    refusal: Refusal | None

    @property
    def topic_name(self) -> str:
        if self.topic is not None:
            return self.topic.record.name
        return self.key if isinstance(self.key, str) else ""


class KafkaProduce(PendingProduce[ProduceAnswer | None]):
    """A produce whose batches are queued."""

    __slots__ = ("entries", "kafka", "now_ms", "parts", "request")

    def __init__(self, request: KafkaRequest, context: KafkaContext, entries: Sequence[Entry]) -> None:
        super().__init__(context.produce)
        self.request = request
        self.kafka = context
        self.entries = entries
        self.now_ms = context.clock.now_ms()

    def begin(self, parts: Sequence[Part]) -> ProduceAnswer | KafkaProduce | None:
        """Queues the parts. Returns the response if it is there already."""
        self.parts = parts
        acks = ACKS.get(self.request.message.acks, Acks.ALL)  # others are refused
        if acks is Acks.NONE:
            self._check_unanswered(parts)
        timeout_ms = min(max(self.request.message.timeout_ms, 1), 600_000)
        try:
            self.queue(parts, acks, timeout_ms, self.now_ms)
        except Problem as problem:
            return self.result([problem] * len(parts))
        return self

    def result(self, outcomes: Sequence[Outcome]) -> ProduceAnswer | None:
        """Returns the response; None with acks=0. Raises Malformed: then the client must look for the leader again."""
        request = self.request
        if request.space is not None:
            request.stored_records = stored_records(self.parts, outcomes)
        if request.span is not None:
            acks = ACKS.get(request.message.acks, Acks.ALL)
            note_produce(request.span, self, request.span.events[0][1], self.parts, outcomes, acks)
        topics: list[tuple[Key, list[ProduceRow]]] = []
        key: Key | None = None
        for entry, outcome in zip(self.entries, outcomes, strict=True):
            if entry.key != key:
                key = entry.key
                topics.append((key, []))
            topics[-1][1].append(self._row(entry, outcome))
        if request.message.acks == 0:
            if request.error is not Error.NONE:
                raise Malformed(f"a produce without acks failed: {request.error.name}")
            return None
        has_moved = request.version >= LEADER_VERSION and request.error is Error.NOT_LEADER_OR_FOLLOWER
        return ProduceAnswer(topics, request.throttle_ms, brokers(self.kafka) if has_moved else ())

    def count_abandoned(self, outcomes: Sequence[Outcome]) -> None:
        count_abandoned(self.request.space, self.context, self.parts, outcomes)

    def _row(self, entry: Entry, outcome: Outcome) -> ProduceRow:
        topic = entry.topic
        if entry.refusal is not None:
            return self._refuse(entry, *entry.refusal)
        assert topic is not None, entry
        if outcome is None:  # acks=0
            return ProduceRow(entry.number)
        if isinstance(outcome, Problem):
            if outcome.code in ("overloaded", "spool_full", "too_many_requests"):
                self.request.throttle_ms = max(self.request.throttle_ms, BUSY_MS)
            return self._refuse(entry, error_of(outcome), outcome.detail)
        assert isinstance(outcome, Appended)
        time_ms = self.now_ms if topic.settings.timestamp_type == "append" else NO_OFFSET
        log_start = self._log_start(entry)
        return _new(ProduceRow, (entry.number, 0, outcome.base_offset, time_ms, log_start, (), None, None))

    def _refuse(self, entry: Entry, error: Error, text: str | None) -> ProduceRow:
        leader: tuple[int, int] | None = None
        record_errors: Sequence[tuple[int, str]] = ()
        if error is Error.NOT_LEADER_OR_FOLLOWER and entry.topic is not None:
            found = leadership(self.kafka, entry.topic, entry.number)
            leader = found.leader, found.epoch
        elif text is not None and error in _OF_RECORDS and (at := _RECORD_NUMBER.match(text)) is not None:
            record_errors = ((int(at[1]), text),)
        log_start = self._log_start(entry) if error in _OF_RECORDS or error in _OF_SEQUENCES else NO_OFFSET
        number = self.request.note(error)
        return ProduceRow(entry.number, number, NO_OFFSET, NO_OFFSET, log_start, record_errors, text, leader)

    def _log_start(self, entry: Entry) -> int:
        partition = None if entry.topic is None else entry.topic.partitions.get(entry.number)
        return NO_OFFSET if partition is None else partition.log.log_start

    def _check_unanswered(self, parts: Sequence[Part]) -> None:
        """Notes the refusals of a produce that is not answered: they end its connection."""
        for entry, part in zip(self.entries, parts, strict=True):
            if entry.refusal is not None:
                self.request.note(entry.refusal.error)
            elif part.problem is not None:
                self.request.note(error_of(part.problem))


def produce(
    request: KafkaRequest, context: KafkaContext
) -> ProduceAnswer | KafkaProduce | Coroutine[Any, Any, Any] | None:
    """Appends the batches of a request."""
    message = request.message
    entries = list(_entries(request, context))
    if not entries:
        return None if message.acks == 0 else ProduceAnswer([])
    pending = KafkaProduce(request, context, entries)
    parts: list[Part] = []
    for entry in entries:
        if entry.refusal is not None:
            parts.append(_refuse_part(entry))
            continue
        if entry.topic is None:
            return _produce_later(pending)
        part = _part_now(entry, pending)
        if part is None:
            return _produce_later(pending)
        parts.append(part)
    return pending.begin(parts)


async def _produce_later(pending: KafkaProduce) -> ProduceAnswer | KafkaProduce | None:
    """Queues the batches of a request that must wait: for a topic, a thread, or a look-up of a producer's id."""
    entries = list(pending.entries)
    parts: list[Part] = []
    for index, given in enumerate(entries):
        entry = given
        if entry.refusal is None and entry.topic is None:
            entry = entries[index] = await _found(entry, pending)
        parts.append(_refuse_part(entry) if entry.refusal is not None else await _part(entry, pending))
    pending.entries = entries
    return pending.begin(parts)


def _entries(request: KafkaRequest, context: KafkaContext) -> Iterator[Entry]:
    """Yields the partitions of a request. One without a topic is to be looked for in the cluster."""
    message = request.message
    refusal = _refusal_of_all(request, context)
    for key, batches in message.topics:
        topic, of_topic = find_topic_by_key(context, key), refusal
        if isinstance(key, bytes) and topic is not None and not may_know(request, topic.record.name):
            topic = None
        name = topic.record.name if topic is not None else key
        if of_topic is None and isinstance(name, bytes):
            of_topic = Refusal(Error.UNKNOWN_TOPIC_ID)
        if of_topic is None and not request.caller.allows(Operation.WRITE, name):
            of_topic = Refusal(Error.TOPIC_AUTHORIZATION_FAILED)
        for number, records in batches:
            found = of_topic or _refusal_of_batch(request, records)
            if found is None and topic is not None:
                found = _refusal_of_partition(context, topic, number)
            yield Entry(key, number, topic, b"" if found is not None else bytes(records), found)


def _refusal_of_all(request: KafkaRequest, context: KafkaContext) -> Refusal | None:
    if request.message.transactional_id is not None:
        return Refusal(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this server has no transactions")
    if request.message.acks not in ACKS:
        return Refusal(Error.INVALID_REQUIRED_ACKS)
    if context.lifecycle.is_refusing:
        return Refusal(Error.NOT_LEADER_OR_FOLLOWER, "the node is stopping")
    if request.space is not None:
        try:
            context.produce.holdings.check_stored(request.space.tenant)
        except QuotaExhausted as error:
            return Refusal(error_of(error), error.detail)
    return None


def _refusal_of_partition(context: KafkaContext, topic: Topic, number: int) -> Refusal | None:
    if not 0 <= number < topic.record.partitions:
        return Refusal(Error.UNKNOWN_TOPIC_OR_PARTITION)
    if not is_of_this_node(context, topic.record.topic_id, number):
        return Refusal(Error.NOT_LEADER_OR_FOLLOWER)
    return None


def _refusal_of_batch(request: KafkaRequest, records: memoryview | None) -> Refusal | None:
    """Returns why a batch is not taken that the log would take, or that needs its own code."""
    if records is None or len(records) < HEADER_BYTES:
        return Refusal(Error.INVALID_RECORD, "there is no record batch")
    header = read_header(records)
    if header.attributes & (_TRANSACTIONAL | CONTROL):
        return Refusal(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this server has no transactions")
    if header.codec == Codec.ZSTD and request.version < ZSTD_VERSION:
        return Refusal(Error.UNSUPPORTED_COMPRESSION_TYPE)
    if has_append_time(header):
        return Refusal(Error.INVALID_TIMESTAMP, "only the server sets append times")
    return None


def _refuse_part(entry: Entry) -> Part:
    """Returns the part of a batch that is not appended."""
    return Part(entry.topic_name, entry.number, 0, None, problem=Problem("invalid_batch", "see its refusal"))


async def _found(entry: Entry, pending: KafkaProduce) -> Entry:
    """Returns the entry with its topic, which another node may have made a moment ago, or with a refusal."""
    context = pending.kafka
    try:
        await context.topics.refresh(entry.topic_name, entry.number + 1)
    except (Problem, EngineError) as error:
        return entry._replace(refusal=Refusal(error_of(error), error.detail))
    topic = find_topic(context, entry.topic_name)
    if topic is None:
        return entry._replace(refusal=Refusal(Error.UNKNOWN_TOPIC_OR_PARTITION))
    return entry._replace(topic=topic, refusal=_refusal_of_partition(context, topic, entry.number))


def _part_now(entry: Entry, pending: KafkaProduce) -> Part | None:
    """Returns the batch as the queue takes it; None if it has to wait before."""
    to = _destination(entry, pending)
    if to.settings.cleanup_policy != "delete":  # each record needs a key
        return None
    try:
        return stored_batch_now(entry.batch, to, pending.context)
    except InvalidBatch:  # it may be one that is repaired
        return None
    except (Problem, EngineError) as error:
        return _failed(entry, error)


async def _part(entry: Entry, pending: KafkaProduce) -> Part:
    context = pending.context
    try:
        try:
            part = await stored_batch(entry.batch, _destination(entry, pending), context)
        except InvalidBatch:
            repaired = await _repair(entry, pending)
            if repaired is entry:
                raise
            part = await stored_batch(repaired.batch, _destination(repaired, pending), context)
        if needs_keys(part):
            await context.offload.by_size(len(part.batch), lambda: check_keys(part))
    except (Problem, EngineError) as error:
        return _failed(entry, error)
    return part


async def _repair(entry: Entry, pending: KafkaProduce) -> Entry:
    """Returns the entry with the latest time of its records in the header of its batch, as Kafka sets it.

    The same entry if that is not what is wrong with it.
    """
    assert entry.topic is not None, entry
    decoded_bytes_max = entry.topic.settings.batch_decoded_bytes_max
    repair = partial(record_batch.with_true_max_timestamp, entry.batch, decoded_bytes_max)
    try:
        repaired = await pending.context.offload.in_thread(repair)
    except EngineError:  # it is not readable, which is the answer to its client
        return entry
    return entry if repaired is None else entry._replace(batch=repaired)


def _failed(entry: Entry, error: Problem | EngineError) -> Part:
    problem = error if isinstance(error, Problem) else from_engine(error)
    return Part(entry.topic_name, entry.number, 0, entry.topic, problem=problem)


def _destination(entry: Entry, pending: KafkaProduce) -> Destination:
    assert entry.topic is not None, entry
    return Destination(entry.topic, None, pending.now_ms, entry.number, entry.number, schemas=pending.context.schemas)
