"""Produce by hand: the batches of a request are views of its frame, which nothing copies or looks into."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from gateway.kafka.codec.messages import Malformed, Output
from gateway.kafka.codec.parts import (
    Endpoint,
    add_count,
    add_endpoints,
    add_key,
    add_text,
    leader_tag,
    read_count,
    read_key,
    read_text,
    read_varint,
    skip_tags,
)

FLEXIBLE_VERSION, ERRORS_VERSION, LEADER_VERSION, ID_VERSION = 9, 8, 10, 13

_I32 = struct.Struct(">i")
_HEAD = struct.Struct(">hi")  # acks, timeout
_INDEX_AND_LENGTH = struct.Struct(">ii")
_ROW = struct.Struct(">ihqq")  # index, error, base offset, append time
_ROW_WITH_START = struct.Struct(">ihqqq")
_new = tuple.__new__

Key = str | bytes  # the name of a topic, or its id


class ProduceRequest(NamedTuple):
    """A request: the numbers of its partitions with their batches, by topic. A batch is None where it is null."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[Key, list[tuple[int, memoryview | None]]]]


class ProduceRow(NamedTuple):
    """A partition of an answer. `record_errors`: numbers of records, with a text each; `leader`: node and epoch."""

    number: int
    error: int = 0
    base_offset: int = -1
    append_time_ms: int = -1
    log_start: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    text: str | None = None
    leader: tuple[int, int] | None = None


class ProduceAnswer:
    """An answer."""

    __slots__ = ("endpoints", "throttle_time_ms", "topics")

    def __init__(
        self,
        topics: Sequence[tuple[Key, Sequence[ProduceRow]]],
        throttle_time_ms: int = 0,
        endpoints: Sequence[Endpoint] = (),
    ) -> None:
        self.topics = topics
        self.throttle_time_ms = throttle_time_ms
        self.endpoints = endpoints

    def __repr__(self) -> str:
        return f"ProduceAnswer(topics={len(self.topics)})"


def read_request(version: int, data: memoryview, position: int) -> ProduceRequest:
    """Returns the request that begins at a position. Raises Malformed."""
    try:
        return _read(version, data, position)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise Malformed(f"Produce {version}: {error}") from None


def _read(version: int, data: memoryview, position: int) -> ProduceRequest:
    is_flexible, has_ids = version >= FLEXIBLE_VERSION, version >= ID_VERSION
    transactional_id, position = read_text(data, position, is_flexible=is_flexible)
    acks, timeout_ms = _HEAD.unpack_from(data, position)
    topics: list[tuple[Key, list[tuple[int, memoryview | None]]]] = []
    count, position = read_count(data, position + _HEAD.size, 3, is_flexible=is_flexible)
    for _ in range(count):
        key, position = read_key(data, position, has_ids=has_ids, is_flexible=is_flexible)
        batches: list[tuple[int, memoryview | None]] = []
        of_topic, position = read_count(data, position, 5, is_flexible=is_flexible)
        for _ in range(of_topic):
            if is_flexible:
                (index,) = _I32.unpack_from(data, position)
                length, position = read_varint(data, position + _I32.size)
                length -= 1
            else:
                index, length = _INDEX_AND_LENGTH.unpack_from(data, position)
                position += _INDEX_AND_LENGTH.size
            end = position + max(length, 0)
            if length < -1 or end > len(data):
                raise Malformed(f"{length} bytes are announced, {len(data) - position} are left")
            batches.append((index, None if length < 0 else data[position:end]))
            position = skip_tags(data, end) if is_flexible else end
        if is_flexible:
            position = skip_tags(data, position)
        topics.append((key, batches))
    if is_flexible:
        skip_tags(data, position)
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def write_answer(version: int, answer: ProduceAnswer, out: Output) -> None:
    """Writes an answer."""
    is_flexible, tail = version >= FLEXIBLE_VERSION, out.tail
    add_count(tail, len(answer.topics), is_flexible=is_flexible)
    for key, rows in answer.topics:
        add_key(tail, key, is_flexible=is_flexible)
        add_count(tail, len(rows), is_flexible=is_flexible)
        for row in rows:
            _add_row(tail, version, row, is_flexible=is_flexible)
        if is_flexible:
            tail.append(0)
    tail += _I32.pack(answer.throttle_time_ms)
    if version >= LEADER_VERSION:
        add_endpoints(out, answer.endpoints)
    elif is_flexible:
        tail.append(0)


def _add_row(tail: bytearray, version: int, row: ProduceRow, *, is_flexible: bool) -> None:
    number, error, base_offset, time_ms, log_start, record_errors, text, leader = row
    if version < 5:
        tail += _ROW.pack(number, error, base_offset, time_ms)
        return
    tail += _ROW_WITH_START.pack(number, error, base_offset, time_ms, log_start)
    if version < ERRORS_VERSION:
        return
    add_count(tail, len(record_errors), is_flexible=is_flexible)
    for at, why in record_errors:
        tail += _I32.pack(at)
        add_text(tail, why, is_flexible=is_flexible)
        if is_flexible:
            tail.append(0)
    add_text(tail, text, is_flexible=is_flexible)
    if not is_flexible:
        return
    if version >= LEADER_VERSION and leader is not None:
        tail.append(1)
        tail += leader_tag(0, leader)
    else:
        tail.append(0)
