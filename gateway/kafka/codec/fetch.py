"""Fetch by hand: requests into plain tuples, and answers whose batches are pieces of their own, without a copy."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from gateway.kafka.codec.messages import Buffer, Cursor, Malformed, Output
from gateway.kafka.codec.parts import (
    Endpoint,
    add_count,
    add_endpoints,
    add_key,
    add_varint,
    leader_tag,
    read_count,
    read_key,
    read_text,
    skip_tags,
)

SESSION_VERSION, EPOCH_VERSION, RACK_VERSION, FLEXIBLE_VERSION, ID_VERSION = 7, 9, 11, 12, 13
REPLICA_STATE_VERSION, ENDPOINT_VERSION = 15, 16
NO_EPOCH = NO_OFFSET = NO_NODE = -1

_I32 = struct.Struct(">i")
_REPLICA_STATE = 1  # its tag
_DIVERGING = struct.Struct(">BBiqB")  # tag, size, epoch, end offset, no tagged fields
_DIVERGING_BYTES = 13
_new = tuple.__new__


class AskedPartition(NamedTuple):
    """A partition of a request: from which offset, and about how many bytes. An epoch of -1 is not given."""

    number: int
    leader_epoch: int
    offset: int
    last_epoch: int
    max_bytes: int


Key = str | bytes  # the name of a topic, or its id


class FetchRequest(NamedTuple):
    """A request. The topics and those that its session is to forget have names, or ids from version 13 on."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    is_committed: bool
    session_id: int
    session_epoch: int
    topics: list[tuple[Key, list[AskedPartition]]]
    forgotten: list[tuple[Key, list[int]]]
    rack: str


class FetchRow(NamedTuple):
    """A partition of an answer. `diverging`: the last common epoch and its end; `leader`: its node and its epoch."""

    number: int
    error: int
    high_watermark: int
    log_start: int
    data: Buffer
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    preferred: int = NO_NODE


class FetchAnswer:
    """An answer. `is_committed`: the request was of a reader of committed records only."""

    __slots__ = ("endpoints", "error", "is_committed", "session_id", "throttle_time_ms", "topics")

    def __init__(
        self,
        topics: Sequence[tuple[Key, Sequence[FetchRow]]] = (),
        *,
        is_committed: bool = False,
        session_id: int = 0,
        error: int = 0,
        endpoints: Sequence[Endpoint] = (),
    ) -> None:
        self.topics = topics
        self.is_committed = is_committed
        self.session_id = session_id
        self.error = error
        self.endpoints = endpoints
        self.throttle_time_ms = 0

    def __repr__(self) -> str:
        return f"FetchAnswer(topics={len(self.topics)}, session_id={self.session_id}, error={self.error})"


class _Form(NamedTuple):
    """The layout of one version."""

    head: struct.Struct
    partition: struct.Struct
    row: struct.Struct
    is_flexible: bool
    has_ids: bool


def _form(version: int) -> _Form:
    is_flexible = version >= FLEXIBLE_VERSION
    head = ("" if version >= REPLICA_STATE_VERSION else "i") + "iiib" + ("ii" if version >= SESSION_VERSION else "")
    partition = "i" + ("i" if version >= EPOCH_VERSION else "") + "q" + ("i" if is_flexible else "")
    partition += ("q" if version >= 5 else "") + "i"
    row = "ihqq" + ("q" if version >= 5 else "") + ("b" if is_flexible else "i")
    row += ("i" if version >= RACK_VERSION else "") + ("" if is_flexible else "i")
    layouts = struct.Struct(f">{head}"), struct.Struct(f">{partition}"), struct.Struct(f">{row}")
    return _Form(*layouts, is_flexible, version >= ID_VERSION)


_FORMS = {version: _form(version) for version in range(4, 19)}


def read_request(version: int, data: memoryview, position: int) -> FetchRequest:
    """Returns the request that begins at a position. Raises Malformed."""
    try:
        return _read(_FORMS[version], version, data, position)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise Malformed(f"Fetch {version}: {error}") from None


def _read(form: _Form, version: int, data: memoryview, position: int) -> FetchRequest:
    head = form.head.unpack_from(data, position)
    position += form.head.size
    if version >= REPLICA_STATE_VERSION:
        head = (-1, *head)
    session = head[5:] or (0, -1)
    topics, position = _read_topics(form, version, data, position)
    forgotten: list[tuple[Key, list[int]]] = []
    if version >= SESSION_VERSION:
        forgotten, position = _read_forgotten(form, data, position)
    rack: str | None = ""
    if version >= RACK_VERSION:
        rack, position = read_text(data, position, is_flexible=form.is_flexible)
        if rack is None:
            raise Malformed("the rack is null")
    replica_id = head[0]
    if form.is_flexible and data[position]:
        replica_id = _replica_id(Cursor(data, position), version, replica_id)
    fields = (replica_id, head[1], head[2], head[3], head[4] == 1, *session, topics, forgotten, rack)
    return _new(FetchRequest, fields)


def _read_topics(
    form: _Form, version: int, data: memoryview, position: int
) -> tuple[list[tuple[Key, list[AskedPartition]]], int]:
    is_flexible, unpack, size = form.is_flexible, form.partition.unpack_from, form.partition.size
    topics: list[tuple[Key, list[AskedPartition]]] = []
    count, position = read_count(data, position, 3, is_flexible=is_flexible)
    for _ in range(count):
        key, position = read_key(data, position, has_ids=form.has_ids, is_flexible=is_flexible)
        partitions: list[AskedPartition] = []
        of_topic, position = read_count(data, position, size, is_flexible=is_flexible)
        for _ in range(of_topic):
            fields = unpack(data, position)
            position += size
            if is_flexible:
                number, epoch, offset, last_epoch, _, max_bytes = fields
                position = position + 1 if not data[position] else skip_tags(data, position)
            elif version >= EPOCH_VERSION:
                (number, epoch, offset, _, max_bytes), last_epoch = fields, NO_EPOCH
            else:
                number, offset, max_bytes, epoch, last_epoch = fields[0], fields[1], fields[-1], NO_EPOCH, NO_EPOCH
            partitions.append(_new(AskedPartition, (number, epoch, offset, last_epoch, max_bytes)))
        if is_flexible:
            position = skip_tags(data, position)
        topics.append((key, partitions))
    return topics, position


def _read_forgotten(form: _Form, data: memoryview, position: int) -> tuple[list[tuple[Key, list[int]]], int]:
    is_flexible = form.is_flexible
    forgotten: list[tuple[Key, list[int]]] = []
    count, position = read_count(data, position, 3, is_flexible=is_flexible)
    for _ in range(count):
        key, position = read_key(data, position, has_ids=form.has_ids, is_flexible=is_flexible)
        of_topic, position = read_count(data, position, _I32.size, is_flexible=is_flexible)
        numbers = list(struct.unpack_from(f">{of_topic}i", data, position))
        position += _I32.size * of_topic
        if is_flexible:
            position = skip_tags(data, position)
        forgotten.append((key, numbers))
    return forgotten, position


def _replica_id(cursor: Cursor, version: int, replica_id: int) -> int:
    """Reads the tagged fields of a request. Returns the id of the replica that asks, -1 for a consumer."""
    former = -1
    for _ in range(cursor.varint()):
        tag, content = cursor.varint(), cursor.take(cursor.varint())
        if tag <= former:
            raise Malformed(f"tag {tag} follows tag {former}")
        former = tag
        if tag == _REPLICA_STATE and version >= REPLICA_STATE_VERSION:
            (replica_id,) = _I32.unpack_from(content)
    return replica_id


def write_answer(version: int, answer: FetchAnswer, out: Output) -> None:
    """Writes an answer. Records are never null: clients take that for an error."""
    form, tail = _FORMS[version], out.tail
    is_flexible = form.is_flexible
    tail += _I32.pack(answer.throttle_time_ms)
    if version >= SESSION_VERSION:
        tail += struct.pack(">hi", answer.error, answer.session_id)
    add_count(tail, len(answer.topics), is_flexible=is_flexible)
    aborted = answer.is_committed - (not is_flexible)  # the length of an empty list, or of null
    for key, rows in answer.topics:
        add_key(out.tail, key, is_flexible=is_flexible)
        add_count(out.tail, len(rows), is_flexible=is_flexible)
        for row in rows:
            _add_row(form, version, row, aborted, out)
        if is_flexible:
            out.tail.append(0)
    if version >= ENDPOINT_VERSION:
        add_endpoints(out, answer.endpoints)
    elif is_flexible:
        out.tail.append(0)


def _add_row(form: _Form, version: int, row: FetchRow, aborted: int, out: Output) -> None:
    number, error, high_watermark, log_start, data, diverging, leader, preferred = row
    if form.is_flexible:
        tail = out.tail
        tail += form.row.pack(number, error, high_watermark, high_watermark, log_start, aborted, preferred)
        add_varint(tail, len(data) + 1)
        out.add_records(data)
        _add_tags(out.tail, diverging, leader)
        return
    fields: list[int] = [number, error, high_watermark, high_watermark]
    if version >= 5:
        fields.append(log_start)
    fields.append(aborted)
    if version >= RACK_VERSION:
        fields.append(preferred)
    out.tail += form.row.pack(*fields, len(data))
    out.add_records(data)


def _add_tags(tail: bytearray, diverging: tuple[int, int] | None, leader: tuple[int, int] | None) -> None:
    if diverging is None and leader is None:
        tail.append(0)
        return
    tail.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        tail += _DIVERGING.pack(0, _DIVERGING_BYTES, *diverging, 0)
    if leader is not None:
        tail += leader_tag(1, leader)
