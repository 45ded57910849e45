"""Reads the records of a consumer instance: GET /consumers/{group}/instances/{instance}/records.

Steps: (1) the coordinator gives the positions of the instance, and a lease: one request reads at a time; (2) partitions
without a position get one by `auto.offset.reset`; (3) the read waits for records, and takes the first that come; (4)
the answer goes to the client, and then the coordinator stores the positions behind it. A node that ends before (4) has
stored nothing, so that the records are delivered again, by whichever node is asked.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec
import orjson
from msgspec import Raw, Struct, structs

from engine.errors import EngineError
from engine.runtime.tasks import start_task
from gateway.connections.response_buffers import sendable_bytes
from gateway.fetch.multi_fetch import MultiFetch
from gateway.fetch.reader import Limits, PartitionRead
from gateway.fetch.rendered_cache import Part
from gateway.fetch.request import SCHEMA
from gateway.groups.group_lag import find_bounds
from gateway.groups.hosting.instances import BEGIN_READ, END_READ
from gateway.groups.model.instances import BeginRead, EndRead, InstanceView
from gateway.groups.model.values import START_EARLIEST, Position
from gateway.groups.names import check_again, check_own
from gateway.http.problems import Problem, from_fields
from gateway.http.request import Request
from gateway.http.response import Response
from gateway.http.response_compression import compress_response
from gateway.rest_proxy.context import RestProxyContext
from gateway.rest_proxy.errors import FORMAT_MISMATCH, NOT_RETRIABLE, SERIALIZATION, Refusal
from gateway.rest_proxy.instances import (
    REQUEST_TIMEOUT_MS,
    WAIT_MS_MAX,
    InstanceSettings,
    call_instance,
    decode_settings,
    names_of,
    query_number,
)
from gateway.rest_proxy.media_types import records_format
from gateway.rest_proxy.schema_records import KINDS

LEASE_MORE_MS = 5000  # beyond the wait: to read, to answer, and to store what was read
UNASSIGNED_PAUSE_S = 0.25  # before another look for partitions
_OUTSIDE = ("offset_below_log_start", "offset_above_high_watermark")


class _Record(Struct):
    """A record as fetches show it."""

    offset: int
    key: str | None = None
    value: Raw = Raw(b"null")
    key_base64: bytes | None = None
    value_base64: str | None = None
    error: str | None = None
    schema_id: int | None = None
    key_json: Raw = Raw()
    key_schema_id: int | None = None


class _Document(Struct):
    topic: str
    partition: int
    records: list[_Record]


_decode = msgspec.json.Decoder(_Document).decode


class _Unreadable(Exception):
    """A record that the format of the instance cannot show."""


async def rest_read_records(request: Request, context: RestProxyContext) -> Response:
    """Answers a read. Raises Refusal, Problem, EngineError."""
    context.lifecycle.check_accepting()
    timeout_ms, max_bytes = query_number(request, "timeout"), query_number(request, "max_bytes")
    wait_ms = REQUEST_TIMEOUT_MS if timeout_ms is None else min(timeout_ms, WAIT_MS_MAX)
    call = BeginRead(*names_of(request), context.groups.new_id(), wait_ms + LEASE_MORE_MS)
    view = await call_instance(context, BEGIN_READ, call)
    if timeout_ms is None and (own_ms := decode_settings(view.settings).timeout_ms) > wait_ms:
        call = structs.replace(call, lease_ms=own_ms + LEASE_MORE_MS)
        view = await call_instance(context, BEGIN_READ, call)
    reading = _Reading(request, context, call, view)
    try:
        return await reading.answer(timeout_ms, max_bytes)
    finally:
        reading.release()


class _Reading:
    """One read. `_moved`: partitions whose position was set by this read, also without a record."""

    def __init__(self, request: Request, context: RestProxyContext, call: BeginRead, view: InstanceView) -> None:
        self._request = request
        self._context = context
        self._call = call
        self._view = view
        self._settings: InstanceSettings = decode_settings(view.settings)
        self._positions: dict[tuple[str, int], Position] = {}
        self._moved: set[tuple[str, int]] = set()
        self._problem: Problem | None = None  # of a partition that cannot be read
        self._has_ended = False

    async def answer(self, timeout_ms: int | None, max_bytes: int | None) -> Response:
        media_type = records_format(self._request.headers.get("Accept", ""), self._settings.format)
        if media_type is None:
            text = f"the consumer instance has the format {self._settings.format}, and Accept names another one"
            raise Refusal(FORMAT_MISMATCH, text)
        loop = asyncio.get_running_loop()
        wait_ms = self._settings.timeout_ms if timeout_ms is None else min(timeout_ms, WAIT_MS_MAX)
        deadline = loop.time() + wait_ms / 1000
        rows: list[bytes] = []
        while True:
            await self._find_positions()
            rows = await self._read(max(0.0, deadline - loop.time()), max_bytes) if self._positions else []
            left_s = deadline - loop.time()
            if rows or left_s <= 0 or self._problem is not None or self._context.lifecycle.is_draining:
                break
            if not self._positions:
                await asyncio.sleep(min(left_s, UNASSIGNED_PAUSE_S))
                self._view = await call_instance(self._context, BEGIN_READ, self._call)
        if not rows and self._problem is not None:
            raise self._problem
        check_again(self._request, self._context.groups, {topic for topic, _ in self._positions})
        response = Response(b"[%b]" % b",".join(rows), {"Content-Type": media_type})
        response = await compress_response(self._request, response)
        self._end()
        return response

    def release(self) -> None:
        """Ends the lease of a read that has returned nothing."""
        if not self._has_ended:
            self._moved.clear()
            self._end()

    def _end(self) -> None:
        """Stores the positions in a task, which runs when the answer has been given to the connection."""
        self._has_ended = True
        moved = tuple(self._positions[slot] for slot in sorted(self._moved))
        call = EndRead(self._call.group, self._call.instance_id, self._call.holder, self._view.version, moved)
        start_task(self._store(call))

    async def _store(self, call: EndRead) -> None:
        try:
            await self._context.groups.coordinators.call(END_READ, InstanceView, call.group, call)
        except (EngineError, Problem):  # the lease ends by itself, and the records are delivered again
            return

    async def _find_positions(self) -> None:
        """Takes the positions of the view; those without an offset begin by the reset policy. Raises Refusal."""
        check_own(self._request, {one.topic for one in self._view.positions})
        for topic in {one.topic for one in self._view.positions}:
            await self._context.topics.refresh(topic)
        slots = {one.slot for one in self._view.positions}
        self._positions = {slot: one for slot, one in self._positions.items() if slot in slots}
        self._moved &= set(self._positions)
        without = [one for one in self._view.positions if one.offset < 0 and one.slot not in self._positions]
        for one in self._view.positions:
            if one.offset >= 0:
                self._positions.setdefault(one.slot, one)
        if without:
            for one, offset in zip(without, await self._starts(without), strict=True):
                self._positions[one.slot] = structs.replace(one, offset=offset)
                self._moved.add(one.slot)

    async def _starts(self, places: Sequence[Position]) -> list[int]:
        reset = self._settings.reset
        if reset == "none" and any(one.offset != START_EARLIEST for one in places):
            first = places[0]
            text = f"partition {first.topic}-{first.partition} has no position, and auto.offset.reset is none"
            raise Refusal(NOT_RETRIABLE, f"Kafka error: {text}")
        bounds = await find_bounds(self._context.fetch.router, [one.slot for one in places])
        return [
            found["high_watermark" if reset == "latest" and one.offset != START_EARLIEST else "log_start"]
            for one, found in zip(places, bounds, strict=True)
        ]

    async def _read(self, wait_s: float, max_bytes: int | None) -> list[bytes]:
        """Returns the records that are there, or that come in time."""
        context, settings = self._context, self._context.settings
        positions = [self._positions[slot] for slot in sorted(self._positions)]
        self._request.topics_read = {one.topic for one in positions}
        meter = self._request.topic_meter
        if meter is not None:
            await meter.wait_readable(self._request.topics_read)
        many = MultiFetch(
            context.fetch, [PartitionRead(one.topic, one.topic_id, one.partition, one.offset) for one in positions]
        )
        least_bytes = self._settings.min_bytes
        looked = await many.check_available()
        if wait_s > 0 and not looked.has_problem and looked.size_bytes < least_bytes:
            with context.fetch.long_polls.waiting(len(positions)):
                await many.wait(least_bytes, wait_s)
        most = settings.fetch_bytes_default if max_bytes is None else max(1, max_bytes)
        form = _FORMS.get(self._settings.format, SCHEMA)
        size = sendable_bytes(self._request, min(most, settings.fetch_bytes_max))
        parts = await many.read(Limits(size, None, form, self._view.version, as_lines=False), with_keys=form == SCHEMA)
        rows: list[bytes] = []
        for one, part in zip(positions, parts, strict=True):
            if meter is not None:
                meter.take_read(one.topic, len(part.body))
            await self._take(one, part, rows)
        return rows

    async def _take(self, one: Position, part: Part, rows: list[bytes]) -> None:
        """Adds the records of a partition, as far as they can be shown, and moves its position behind them."""
        next_offset = part.next_offset
        if part.problem is not None:
            if part.problem.code not in _OUTSIDE:
                self._problem = from_fields(part.problem)
                return
            [next_offset] = await self._starts([structs.replace(one, offset=-1)])
        elif part.record_count:
            shown, next_offset, error = await self._context.fetch.offload.by_size(
                len(part.body), partial(self._rows_of, one, part)
            )
            rows += shown
            if error is not None:
                where = f"{self._visible(one.topic)}-{one.partition}"
                hint = f"seek to {next_offset + 1} to pass it, or read it with the format binary"
                self._problem = Refusal(SERIALIZATION, f"the record {next_offset} of {where} {error}; {hint}")
        if next_offset != one.offset:
            self._positions[one.slot] = structs.replace(one, offset=next_offset)
            self._moved.add(one.slot)

    def _rows_of(self, one: Position, part: Part) -> tuple[list[bytes], int, _Unreadable | None]:
        """Returns rows, and the offset behind them; or that of a record that cannot be shown, and why."""
        rows: list[bytes] = []
        for record in _decode(part.body).records:
            try:
                rows.append(self._row(one, record))
            except _Unreadable as error:
                return rows, record.offset, error
        return rows, part.next_offset, None

    def _visible(self, topic: str) -> str:
        return topic if self._request.space is None else self._request.space.visible(topic)

    def _row(self, one: Position, record: _Record) -> bytes:
        if record.error is not None:
            raise _Unreadable("is in a batch that cannot be decoded")
        if self._settings.format in KINDS:
            key, value = self._parts_by_schema(record)
        else:
            key, value = (_json_parts if self._settings.format == "json" else _binary_parts)(record)
        topic = orjson.dumps(self._visible(one.topic))
        return _ROW % (topic, key, value, one.partition, record.offset)

    def _parts_by_schema(self, record: _Record) -> Iterable[bytes]:
        """Returns key and value as the JSON of their schemas. Raises _Unreadable."""
        key, value = b"null", bytes(record.value)
        if record.key is not None or record.key_base64 is not None:
            self._check_schema(record.key_schema_id, "key")
            key = bytes(record.key_json)
            if not key:
                raise _Unreadable(f"has a key that does not follow schema {record.key_schema_id}, or is too large")
        if record.value_base64 is not None or value != b"null":
            self._check_schema(record.schema_id, "value")
        if record.value_base64 is not None:
            raise _Unreadable(f"has a value that does not follow schema {record.schema_id}, or is too large")
        return key, value

    def _check_schema(self, schema_id: int | None, part: str) -> None:
        """Raises _Unreadable for an id that the node does not know, or that is not of the format of the instance."""
        schemas = self._context.fetch.schemas
        asked = None if schemas is None or schema_id is None else schemas.find(schema_id)
        if asked is None or asked.found is None or asked.found.kind != KINDS[self._settings.format]:
            raise _Unreadable(f"has a {part} that names no schema of the format {self._settings.format}")


_FORMS = {"json": "json", "binary": "base64"}  # of the values of reads; others by their schemas
_ROW = b'{"topic":%b,"key":%b,"value":%b,"partition":%d,"offset":%d}'


def _json_parts(record: _Record) -> Iterable[bytes]:
    """Returns key and value as JSON: as they are, or a text that is none as a string. Raises _Unreadable."""
    if record.key_base64 is not None:
        raise _Unreadable("has a key that is neither JSON nor text")
    key = b"null" if record.key is None else _as_json(record.key.encode())
    if record.value_base64 is None:
        return key, bytes(record.value)
    return key, _as_json(base64.b64decode(record.value_base64))


def _as_json(data: bytes) -> bytes:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise _Unreadable("has a value that is neither JSON nor text") from None
    try:
        return bytes(msgspec.json.decode(data, type=Raw)).translate(_LINE_ENDS_TO_SPACES)
    except (msgspec.DecodeError, RecursionError):
        return orjson.dumps(text)


def _binary_parts(record: _Record) -> Iterable[bytes]:
    """Returns key and value in base64."""
    key = record.key_base64 if record.key_base64 is not None else None if record.key is None else record.key.encode()
    encoded = b"null" if key is None else b'"%b"' % base64.b64encode(key)
    return encoded, b"null" if record.value_base64 is None else b'"%b"' % record.value_base64.encode()


_LINE_ENDS_TO_SPACES = bytes.maketrans(b"\r\n", b"  ")
