"""Copies dead letters of groups to their dead-letter topics, each once.

A dead letter stays in the state of its group until its copy is committed. Each copy has an idempotency key, made of the
group and the place of the record, so that a copy that is made twice, after a crash or a lost answer, is stored once
within the topic's `idempotency_window_ms`. Partition N of the record's topic goes to partition N modulo the count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import structs

from engine.errors import InvalidBatch, OtherTopic
from engine.format import batch as record_batch
from engine.format.batch import Record
from engine.format.batch_header import Header
from engine.format.keyed_batch import stored_entry
from engine.producers.appends import AppendConditions
from gateway.groups.share.values import DeadLetter
from gateway.groups.share_reads import SHARE_STORED, KeysRead
from gateway.http.problems import Problem
from gateway.produce.batching import Part
from gateway.produce.context import ProduceContext
from gateway.produce.headers import IdempotencyKey
from gateway.produce.idempotency import HeldKey, keyed_request
from gateway.produce.queue import PendingOutcomes, check_keys, needs_keys
from replication.replica.acks import Acks

PREFIX = "dead-letter-"  # of the names of the headers that a copy has beside those of the record

Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


async def copy_dead_letter(context: ProduceContext, letter: DeadLetter, shown_to: Callable[[str, str], str]) -> int:
    """Copies the records of one run. Returns how many there were. Raises EngineError, Problem.

    Records of a topic that was deleted and created again are gone: none is copied, and none of the new topic.
    `shown_to`: takes the name of the group and a name; returns it as the owner of the group says it.
    """
    shown = structs.replace(
        letter, group=shown_to(letter.group, letter.group), topic=shown_to(letter.group, letter.topic)
    )
    rows: list[tuple[int, Row]] = []
    next_offset = letter.first
    while next_offset <= letter.last:
        call = KeysRead(next_offset, letter.last + 1)
        try:
            end, data = await context.router.call(
                SHARE_STORED, letter.topic, letter.partition, call, topic_id=letter.topic_id
            )
        except OtherTopic:
            return 0
        if end <= next_offset:
            break
        rows += [row for row in _rows(shown, data) if next_offset <= row[0] <= letter.last]
        next_offset = end
    await asyncio.gather(*(_copy(context, letter, offset, row) for offset, row in rows))
    return len(rows)


async def _copy(context: ProduceContext, letter: DeadLetter, offset: int, row: Row) -> None:
    await context.topics.refresh(letter.dead_letter_topic)
    topic = context.topics.topic(letter.dead_letter_topic)
    name = f"dead-letter {letter.group} {letter.topic_id} {letter.partition} {offset}"
    now_ms = context.clock.now_ms()
    keyed = keyed_request(IdempotencyKey(name.encode(), name.encode()), b"")
    with HeldKey(context, topic, keyed, now_ms) as held:
        if held.may_be_known:
            await held.look_up()
        entry = held.entry
        batch = record_batch.encode([row], entry=stored_entry(entry))
        part = Part(
            topic.record.name,
            letter.partition % entry.partitions,
            1,
            topic,
            batch,
            conditions=AppendConditions(key=entry),
        )
        timeout_ms = context.settings.produce_timeout_ms
        if needs_keys(part):
            check_keys(part)
        pending = PendingOutcomes(context)
        pending.queue([part], Acks.ALL, timeout_ms, now_ms)
        [outcome] = await pending
    if isinstance(outcome, Problem):
        raise outcome


def _rows(letter: DeadLetter, data: bytes | bytearray) -> list[tuple[int, Row]]:
    """Returns the records of stored batches as those of copies, each with its offset."""
    rows: list[tuple[int, Row]] = []
    for position, header in record_batch.walk(data):
        try:
            records: Sequence[Record] = record_batch.decode(data[position : position + header.size_bytes])
        except InvalidBatch as error:
            rows += [(offset, _undecodable(letter, header, offset, error)) for offset in _offsets(letter, header)]
            continue
        for record in records:
            headers = [*record.headers, *_origin(letter, record.offset, letter.reason, letter.error)]
            rows.append((record.offset, (record.timestamp, record.key, record.value, headers)))
    return rows


def _offsets(letter: DeadLetter, header: Header) -> range:
    return range(max(letter.first, header.base_offset), min(letter.last + 1, header.next_offset))


def _undecodable(letter: DeadLetter, header: Header, offset: int, error: InvalidBatch) -> Row:
    return header.base_timestamp, None, None, _origin(letter, offset, "undecodable", str(error))


def _origin(letter: DeadLetter, offset: int, reason: str, error: str) -> list[tuple[str, bytes | None]]:
    fields = {
        "reason": reason,
        "attempts": str(letter.deliveries),
        "group": letter.group,
        "topic": letter.topic,
        "topic-id": letter.topic_id,
        "partition": str(letter.partition),
        "offset": str(offset),
    }
    if error:
        fields["error"] = error
    return [(PREFIX + name, value.encode()) for name, value in fields.items()]
