"""Checkers of topics that were created again: each consumer gets all of the new one, and no old record as one of it.

Pure. Repeated deliveries are allowed: members and nodes come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.checking.checkers import FinalLog, duplicates, lost_writes
from tests.checking.history import Polled, Produced
from tests.checking.recreation_history import Consumed, Delivered, Noticed, Recreations, Written, topic_id_in

SHOWN_MAX = 2  # of each rule and consumer: one is enough for a diagnosis
Place = tuple[str, int, int]  # topic id, partition, offset


def check_recreations(history: Recreations) -> list[str]:
    """Return the findings."""
    findings = list(_of_the_harness(history))
    findings += _of_the_log(history)
    places: dict[Place, str] = {
        (write.topic_id, write.partition, write.offset): write.value for write in history.written
    }
    places |= {
        (delivered.topic_id, delivered.partition, delivered.offset): delivered.value for delivered in history.read
    }
    for consumer in history.consumers:
        for rule in (_mixed, _back, _unnotified, _skipped):
            findings += list(rule(consumer, history))[:SHOWN_MAX]
        findings += list(_elsewhere(consumer, places))[:SHOWN_MAX]
        findings += [f"N7 refused: {consumer.name}: {text}" for text in consumer.refused[:1]]
        expected = history.settled(consumer.partition)
        if missed := sorted(expected - consumer.values):
            what = f"{len(missed)} of {len(expected)} acknowledged records, the first {missed[0]}"
            findings.append(f"N6 missed: {consumer.name} did not get {what}")
    return findings


def in_two_topics(produced: Iterable[Produced], polled: Iterable[Polled]) -> list[str]:
    """N3: a record is of one topic in all answers. Partitions are named by the ids of their topics."""
    places: dict[str, set[str]] = {}
    for write in produced:
        for value in write.values if write.outcome == "ok" else ():
            places.setdefault(value, set()).add(write.partition)
    for poll in polled:
        for _, value in poll.records:
            places.setdefault(value, set()).add(poll.partition)
    return [f"N3 mixed: {value} is in {sorted(those)}" for value, those in sorted(places.items()) if len(those) > 1]


def not_from_the_start(polled: Iterable[Polled]) -> list[str]:
    """N5: each reader begins at the beginning of each topic, which nothing has moved."""
    begun: dict[tuple[str, str], int] = {}
    for poll in polled:
        begun.setdefault((poll.client, poll.partition), poll.asked)
    return [f"N5 skipped: {client} began {name} at {asked}" for (client, name), asked in sorted(begun.items()) if asked]


def _of_the_harness(history: Recreations) -> Iterator[str]:
    """A history in which nothing happened proves nothing."""
    if len(set(history.topic_ids)) < 2:
        yield f"N0 not created again: {history.topic} had the ids {history.topic_ids}"
    for topic_id in history.topic_ids:
        if not any(write.topic_id == topic_id and write.is_settled for write in history.written):
            yield f"N0 nothing written: no record was acknowledged in the topic {topic_id}"
    if not history.consumers:
        yield "N0 no consumer"


def _of_the_log(history: Recreations) -> Iterator[str]:
    """Everything acknowledged is readable at its offset, once, and nothing of another topic is in the log."""
    logs: dict[str, FinalLog] = {}
    for write in (*history.written, *history.read):
        logs.setdefault(_log_of(write), FinalLog(_log_of(write), 0, 0, 0))
    for write in history.read:
        logs[_log_of(write)].records[write.offset] = write.value
    settled = [
        Produced("writer", _log_of(write), (write.value,), outcome="ok", base_offset=write.offset)
        for write in history.written
        if write.is_settled
    ]
    yield from lost_writes(settled, logs, {})[:SHOWN_MAX]
    yield from duplicates(logs.values())[:SHOWN_MAX]
    if foreign := [delivered for delivered in history.read if topic_id_in(delivered.value) != delivered.topic_id]:
        yield f"N2 foreign: {len(foreign)} records in the topic {foreign[0].topic_id}, the first {foreign[0].value}"


def _log_of(event: Written | Delivered) -> str:
    return f"{event.topic_id}/{event.partition}"


def _delivered(consumer: Consumed) -> Iterator[Delivered]:
    return (event for event in consumer.events if isinstance(event, Delivered))


def _mixed(consumer: Consumed, history: Recreations) -> Iterator[str]:
    """A record that is delivered as of one topic was written to that topic."""
    for delivered in _delivered(consumer):
        if delivered.topic_id and topic_id_in(delivered.value) != delivered.topic_id:
            yield f"N3 mixed: {consumer.name} got {delivered.value} as a record of the topic {delivered.topic_id}"


def _back(consumer: Consumed, history: Recreations) -> Iterator[str]:
    """After a record of a new topic comes none of an older one."""
    newest = 0
    order = {topic_id: number for number, topic_id in enumerate(history.topic_ids)}
    for delivered in _delivered(consumer):
        number = order.get(topic_id_in(delivered.value), -1)
        if number < newest:
            yield f"N4 old record: {consumer.name} got {delivered.value} after the topic {history.topic_ids[newest]}"
        newest = max(newest, number)


def _unnotified(consumer: Consumed, history: Recreations) -> Iterator[str]:
    """A consumer with a position of its own is notified before it gets the first record of another topic."""
    noticed_id: str | None = None
    for event in consumer.events:
        if isinstance(event, Noticed) or noticed_id is None:
            noticed_id = event.topic_id
        elif consumer.is_notified and topic_id_in(event.value) != noticed_id:
            yield f"N5 not notified: {consumer.name} got {event.value}; the last notice was of the topic {noticed_id}"
            noticed_id = topic_id_in(event.value)


def _skipped(consumer: Consumed, history: Recreations) -> Iterator[str]:
    """The first record of each partition of each topic is at 0, and there are no gaps."""
    if not consumer.is_ordered:
        return
    ends: dict[tuple[str, int], int] = {}
    for delivered in _delivered(consumer):
        log_of = topic_id_in(delivered.value), delivered.partition
        if delivered.offset > (end := ends.get(log_of, 0)):
            text = f"offset {delivered.offset} after {end} records of {log_of[0]}/{log_of[1]}"
            yield f"N5 skipped: {consumer.name} got {text}"
        ends[log_of] = max(end, delivered.offset + 1)


def _elsewhere(consumer: Consumed, places: dict[Place, str]) -> Iterator[str]:
    """A delivered record has the value of its offset."""
    for delivered in _delivered(consumer):
        expected = places.get((topic_id_in(delivered.value), delivered.partition, delivered.offset), delivered.value)
        if expected != delivered.value:
            text = f"{delivered.value} at offset {delivered.offset}, where {expected} is"
            yield f"N3 other value: {consumer.name} got {text}"
