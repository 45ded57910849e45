"""Decodes the records of v3: JSON objects one after another, each with the type of its key and of its value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from engine.format.batch import RESERVED_PREFIX
from gateway.http.json_limits import JsonLimits, check_utf8, check_value
from gateway.http.problems import Problem
from gateway.http.times import time_of_body
from gateway.produce.batching import Headers, Incoming, IncomingRow, check_count
from gateway.rest_proxy.errors import BAD_REQUEST, INVALID_PAYLOAD, PARTITION, Refusal
from gateway.rest_proxy.records import decode_body
from gateway.rest_proxy.schema_records import Encoding, find_encoder

SCHEMA_TYPES = ("AVRO", "JSONSCHEMA", "PROTOBUF")
_NULL = b"null"
_INSIDE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)  # a string behind its first quote, without the last one
_TOKENS = re.compile(rb'"' + _INSIDE.pattern + rb'"|[{}\[\]"]', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")
_OPENING = b"{["
_QUOTE = ord('"')


class _Header(Struct, forbid_unknown_fields=True):
    name: str
    value: bytes | None = None


class _Data(Struct, forbid_unknown_fields=True):
    data: Raw | UnsetType = UNSET
    type: str | None = None
    subject: Any = None
    subject_name_strategy: Any = None
    schema_id: int | None = None
    schema_version: Any = None
    schema: str | None = None


class RecordBody(Struct, forbid_unknown_fields=True):
    """One record of a request."""

    partition_id: int | None = None
    headers: list[_Header] | None = None
    key: _Data | None = None
    value: _Data | None = None
    timestamp: int | str | None = None


class EntryBody(RecordBody, forbid_unknown_fields=True, kw_only=True):
    """One record of a batch."""

    id: Annotated[str, Meta(min_length=1, max_length=80)]


class TypedRow(IncomingRow, gc=False):
    """A record, and the types of its key and value, as its receipt repeats them."""

    key_type: str | None = None
    value_type: str | None = None


_RECORD = msgspec.json.Decoder(RecordBody)


class Splitter:
    """Divides a stream of bytes into the JSON objects in it. `pending_bytes` are those of the one that has begun.

    No byte is looked at twice, however small the pieces are: a client that sends single bytes costs no more than those.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = self._depth = 0
        self._is_in_string = False  # at `_scanned`

    @property
    def pending_bytes(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the objects that are whole now. Raises Problem malformed_json for what begins no object."""
        self._buffer += data
        begin = 0  # of the object that has no end yet
        while True:
            if not self._depth:
                self._scanned = begin = _SPACE.match(self._buffer, begin).end()  # type: ignore[union-attr]  # or nothing
                if begin == len(self._buffer):
                    break
                if self._buffer[begin] not in b"{":
                    raise Problem("malformed_json", "a record is a JSON object, and the body has something else")
            if not self._find_end():
                break
            yield bytes(self._buffer[begin : self._scanned])
            begin = self._scanned
        del self._buffer[:begin]
        self._scanned -= begin

    def _find_end(self) -> bool:
        """Goes on to the end of the object; False: it has not come."""
        if self._is_in_string and not self._pass_string():
            return False
        for token in _TOKENS.finditer(self._buffer, self._scanned):
            text = token[0]
            if len(text) > 1:  # a string
                continue
            self._scanned = token.end()
            if text == b'"':  # one whose end has not come
                self._is_in_string = True
                self._pass_string()
                return False
            self._depth += 1 if text in _OPENING else -1
            if not self._depth:
                return True
        self._scanned = len(self._buffer)
        return False

    def _pass_string(self) -> bool:
        """Goes on to the end of a string; False: it has not come."""
        self._scanned = _INSIDE.match(self._buffer, self._scanned).end()  # type: ignore[union-attr]  # or nothing
        if self._scanned == len(self._buffer) or self._buffer[self._scanned] != _QUOTE:  # or half of an escape
            return False
        self._scanned += 1
        self._is_in_string = False
        return True


def split(body: bytes, records_max: int) -> list[bytes]:
    """Returns the JSON objects of a whole body. Raises Problem malformed_json, body_too_large, Refusal."""
    splitter = Splitter()
    objects = list(islice(splitter.feed(body), records_max + 1))
    if len(objects) > records_max:  # the rest is not looked at
        check_count(len(objects), records_max)
    if splitter.pending_bytes:
        raise Problem("malformed_json", "the last JSON object of the body has no end")
    if not objects:
        raise Refusal(INVALID_PAYLOAD, "Payload error. The body has no record.")
    return objects


def decode_records(where: Encoding, records_max: int, body: bytes, limits: JsonLimits) -> Incoming:
    """Returns the records of a whole body, in which they may be of two bytes each.

    Raises Problem, Refusal, NeedsSchemas.
    """
    check_utf8(body)
    try:
        record = _RECORD.decode(body)
    except (msgspec.DecodeError, RecursionError):  # several, or a bad one
        objects = split(body, records_max)
        return [row_of(decode_body(one, _RECORD, 0), limits, position, where) for position, one in enumerate(objects)]
    return [row_of(record, limits, 0, where)]


def decode_record(body: bytes, limits: JsonLimits, where: Encoding) -> TypedRow:
    """Returns a record. Raises Problem, Refusal, NeedsSchemas."""
    check_utf8(body)
    return row_of(decode_body(body, _RECORD, 0), limits, 0, where)


def row_of(record: RecordBody, limits: JsonLimits, position: int, where: Encoding) -> TypedRow:
    """Returns the fields of a record as bytes. Raises Problem, Refusal, NeedsSchemas.

    `where` has the topic and the registry of those with a schema.
    """
    key, value = (
        _bytes_of(data, limits, position, where, part) for part, data in (("key", record.key), ("value", record.value))
    )
    if record.partition_id is not None and record.partition_id < 0:
        raise Refusal(PARTITION, f"Partition not found. partition_id is {record.partition_id}")
    timestamp = None
    if record.timestamp is not None:
        try:
            timestamp = time_of_body(record.timestamp)
        except ValueError as error:
            raise Problem("invalid_body", f"record {position}: timestamp {record.timestamp!r} {error}") from None
    return TypedRow(
        key,
        value,
        _headers_of(record, position),
        timestamp,
        record.partition_id,
        _type(record.key),
        _type(record.value),
    )


def _headers_of(record: RecordBody, position: int) -> Headers:
    headers: Headers = []
    for header in record.headers or ():
        if header.name.startswith(RESERVED_PREFIX):
            text = f"header {header.name!r}: names that begin with {RESERVED_PREFIX} are the log's own"
            raise Problem("invalid_body", f"record {position}: {text}")
        headers.append((header.name, header.value))
    return headers


def _type(data: _Data | None) -> str | None:
    return None if data is None or data.type is None else data.type.upper()


def _bytes_of(data: _Data | None, limits: JsonLimits, position: int, where: Encoding, part: str) -> bytes | None:
    if data is None:
        return None
    given, kind = data.data, _type(data)
    if kind is None or kind in SCHEMA_TYPES:
        if where.schemas is None:
            text = (
                f"record {position}: the type {kind or 'of a schema'} needs a schema registry, and this node has none"
            )
            raise Refusal(BAD_REQUEST, text)
        if kind is None or (data.schema_id is None and data.schema is None):
            text = f"record {position}: give the {part} a type, and schema_id or schema"
            raise Refusal(BAD_REQUEST, f"Bad Request: {text}")
        encoding = where._replace(format=kind.lower())
        return find_encoder(encoding, part, data.schema_id, data.schema).encode(given, limits, position, part)
    if given is UNSET or bytes(given) == _NULL:
        return None
    if kind == "JSON":
        if len(given) > limits.harmless_bytes:
            check_value(given, limits, position)
        return bytes(given)
    try:
        if kind == "STRING":
            return msgspec.json.decode(given, type=str).encode()
        if kind == "BINARY":
            return msgspec.json.decode(given, type=bytes)
    except msgspec.ValidationError as error:
        raise Refusal(BAD_REQUEST, f"Bad Request: record {position}: data of the type {kind}: {error}") from None
    raise Refusal(BAD_REQUEST, f"Bad Request: record {position}: the type is {kind[:40]}; give BINARY, JSON or STRING")


def text_of_time(time_ms: int) -> str:
    """Returns a time as receipts show it."""
    return f"{_second(time_ms // 1000)}.{time_ms % 1000:03}Z"


@lru_cache(maxsize=64)
def _second(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
