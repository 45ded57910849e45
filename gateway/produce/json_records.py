"""JSON record objects: the envelope of `application/json` and the lines of NDJSON with `ndjson=records`.

A value is never parsed into objects: msgspec returns the bytes that the client sent, and these are stored. This file
checks in bulk what msgspec does not: that the body is UTF-8 and that no field is given twice.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

import penstock_codec
from engine.format.batch import RESERVED_PREFIX
from gateway.http.json_limits import (
    DEFAULT_LIMITS,
    JsonLimits,
    check_utf8,
    check_value,
    malformed_json,
    malformed_line,
    reject_lines,
    stack_exhausted,
)
from gateway.http.problems import Problem
from gateway.http.record_content_type import is_text, media_type_of
from gateway.http.times import time_of_body
from gateway.produce.batching import Headers, Incoming, IncomingObjects, IncomingRow, IncomingSpans

_NULL = b"null"
_LEVEL = 2  # brackets around a record of an envelope
ENVELOPE_FORM = 'expected {"records":[{"value":…}]}'
_TOPIC_ENVELOPE_FORM = 'expected {"records":[{"topic":…,"value":…}]}'
E = TypeVar("E", bound=Struct)  # an envelope
L = TypeVar("L", bound=Struct)  # a line


class RecordObject(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One record object of a body."""

    key: Raw | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    headers: dict[str, Raw] | UnsetType = UNSET
    timestamp: int | str | UnsetType | None = UNSET
    partition: int | UnsetType | None = UNSET
    key_base64: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET


class _Envelope(Struct, forbid_unknown_fields=True):
    records: list[RecordObject]


class FetchedObject(RecordObject, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A line as fetch writes it, so that a fetch can be piped into a produce: its position is dropped.

    The position is its offset and, beside an offset, its partition.
    """

    offset: int | UnsetType = UNSET


class _TopicObject(RecordObject, forbid_unknown_fields=True, omit_defaults=True, gc=False, kw_only=True):
    topic: str


class _TopicEnvelope(Struct, forbid_unknown_fields=True):
    records: list[_TopicObject]


class _FetchedTopicObject(FetchedObject, forbid_unknown_fields=True, omit_defaults=True, gc=False, kw_only=True):
    topic: str


def _form_of(record: type[Struct]) -> str:
    return f"a record has {', '.join(sorted(record.__struct_fields__))}"


_RECORD_FORM = _form_of(RecordObject)
_TOPIC_RECORD_FORM = _form_of(_TopicObject)
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_TOPIC_ENVELOPE = msgspec.json.Decoder(_TopicEnvelope)
_TOPIC_LINE = msgspec.json.Decoder(_FetchedTopicObject)
_LINE = msgspec.json.Decoder(FetchedObject)
_ENCODER = msgspec.json.Encoder()


def decode_envelope(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> Incoming:
    """Returns the records of `{"records":[…]}`.

    Raises Problem: invalid_utf8, malformed_json, unknown_field, invalid_body, json_too_complex.
    """
    return _found_objects(body, limits, are_lines=False) or decode_envelope_plainly(body, limits)


def _found_objects(body: bytes, limits: JsonLimits, *, are_lines: bool) -> IncomingSpans | IncomingObjects | None:
    """Returns the records that the compiled codec finds; None without it, and if it declines or finds none."""
    native = penstock_codec.native
    found = None if native is None else native.find_objects(body, are_lines, limits.depth_max, limits.digits_max)
    if found is None or not found[2]:
        return None
    are_bare, table, count, longest, unescaped = found
    if are_bare:
        return IncomingSpans(body, table, count, longest)
    plainly = decode_record_lines_plainly if are_lines else decode_envelope_plainly
    return IncomingObjects(body + unescaped, table, count, are_lines, partial(plainly, body, limits))


def decode_envelope_plainly(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> list[IncomingRow]:
    """Returns what `decode_envelope` returns, without the compiled codec. Raises as it does."""
    check_utf8(body)
    return to_rows(_decode_envelope(body, _ENVELOPE).records, limits)


def decode_topic_envelope(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> tuple[list[str], list[IncomingRow]]:
    """Returns the topic of each record, and the records. Raises as decode_envelope does."""
    check_utf8(body)
    envelope = _decode_envelope(body, _TOPIC_ENVELOPE, _TOPIC_RECORD_FORM, _TOPIC_ENVELOPE_FORM)
    return _with_topics(envelope.records, limits)


def _with_topics(
    records: Sequence[_TopicObject | _FetchedTopicObject], limits: JsonLimits
) -> tuple[list[str], list[IncomingRow]]:
    return [record.topic for record in records], to_rows(records, limits)


def _decode_envelope(
    body: bytes, decoder: msgspec.json.Decoder[E], record_form: str = _RECORD_FORM, envelope_form: str = ENVELOPE_FORM
) -> E:
    try:
        envelope = decoder.decode(body)
    except msgspec.ValidationError as error:
        reject_lines(body)
        is_of_record = " - at `$.records[" in str(error)
        raise _wrong_shape(error, record_form if is_of_record else envelope_form) from None
    except (msgspec.DecodeError, RecursionError):
        reject_lines(body)
        raise malformed_json(body, _LEVEL) from None
    _check_no_duplicates(body, _ENCODER.encode(envelope))
    return envelope


def decode_record_lines(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> Incoming:
    """Returns the records of NDJSON with `ndjson=records`. Raises Problem with the number of the bad line or record."""
    return _found_objects(body, limits, are_lines=True) or decode_record_lines_plainly(body, limits)


def decode_record_lines_plainly(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> list[IncomingRow]:
    """Returns what `decode_record_lines` returns, without the compiled codec. Raises as it does."""
    records: list[FetchedObject] = _decode_lines(body, _LINE)
    _drop_positions(body, records)
    return to_rows(records, limits)


def decode_topic_lines(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> tuple[list[str], list[IncomingRow]]:
    """Returns the topic of each line, and the records. Raises as decode_record_lines does."""
    records: list[_FetchedTopicObject] = _decode_lines(body, _TOPIC_LINE)
    _drop_positions(body, records)
    return _with_topics(records, limits)


def _drop_positions(body: bytes, records: Iterable[FetchedObject]) -> None:
    """Drops offset and partition of fetched records: the partition of the source does not choose that of the copy."""
    if b'"offset"' in body:
        for record in records:
            if record.offset is not UNSET:
                record.partition = UNSET


def _decode_lines(body: bytes, decoder: msgspec.json.Decoder[L]) -> list[L]:
    check_utf8(body)
    trimmed = body[:-1] if body.endswith(b"\n") else body
    try:
        records: list[L] = decoder.decode_lines(body)
    except (msgspec.DecodeError, RecursionError):
        records = []
    is_exact = len(records) == trimmed.count(b"\n") + 1 and len(_ENCODER.encode_lines(records)) == len(trimmed) + 1
    if is_exact:
        return records
    return [_decode_line(body, record, *line, decoder) for record, line in enumerate(numbered_lines(body))]


def _decode_line(body: bytes, position: int, number: int, line: bytes, decoder: msgspec.json.Decoder[L]) -> L:
    try:
        record = decoder.decode(line)
    except msgspec.ValidationError as error:
        problem = _wrong_shape(error, _form_of(decoder.type))
        raise Problem(problem.code, f"line {number}: {problem.detail}", line=number) from None
    except RecursionError:
        raise stack_exhausted(line, f"line {number}", line=number) from None
    except msgspec.DecodeError:
        raise malformed_line(body, number, position) from None
    _check_no_duplicates(line, _ENCODER.encode(record), line=number)
    return record


def numbered_lines(body: bytes) -> Iterable[tuple[int, bytes]]:
    """Yields the lines that are not blank, counted from 1, without the white space around them."""
    for number, line in enumerate(body.split(b"\n"), 1):
        if stripped := line.strip(b" \t\r"):
            yield number, stripped


def to_rows(records: Sequence[RecordObject], limits: JsonLimits = DEFAULT_LIMITS) -> list[IncomingRow]:
    """Returns the fields of record objects as bytes, in order.

    Raises Problem invalid_body, json_too_complex, which name the record.
    """
    no_headers: Headers = []
    harmless = limits.harmless_bytes
    rows = []
    for position, record in enumerate(records):
        key, value = record.key, record.value
        if value is not UNSET and len(value) > harmless:
            check_value(value, limits, position)
        row = IncomingRow(
            None if key is UNSET else key_bytes(bytes(key)),
            None if value is UNSET else _value_bytes(bytes(value)),
            no_headers if record.headers is UNSET else _headers(record.headers, position),
        )
        if value is UNSET or record.key_base64 is not UNSET or record.value_base64 is not UNSET:
            _take_base64(row, record, position)
        if row.headers and row.value is not None and row.value[:1] == b'"' and is_text(media_type_of(row.headers)):
            _take_text(row, record)
        if record.timestamp is not UNSET:
            row.timestamp = _timestamp(record.timestamp, position)
        if record.partition is not UNSET:
            row.partition = _partition(record.partition, position)
        rows.append(row)
    return rows


def _wrong_shape(error: msgspec.ValidationError, expected: str) -> Problem:
    code = "unknown_field" if "unknown field" in str(error) else "invalid_body"
    return Problem(code, f"{str(error).replace('Object contains', 'there is an')}; {expected}")


def _check_no_duplicates(body: bytes, encoded: bytes, **members: Any) -> None:
    """Raises Problem for a field given twice: every JSON parser silently keeps the last one.

    (1) The decoded records encoded again are as long as a body without white space and without duplicates. (2) For a
    body with white space, the comparison removes it. (3) If they still differ, perhaps by escapes, each object is
    checked.
    """
    if len(encoded) == len(body):
        return
    if len(msgspec.json.format(encoded, indent=-1)) == len(msgspec.json.format(body, indent=-1)):
        return
    twice = _find_duplicate(body)
    if twice is not None:
        raise Problem("invalid_body", f"the field {twice!r} is given twice", **members)


def _find_duplicate(body: bytes) -> str | None:
    """Returns the first field that a record object, its headers or the envelope has twice. Values are not checked."""
    try:
        document: _Pairs = json.loads(body.decode(), object_pairs_hook=_Pairs, parse_int=str, parse_float=str)
    except RecursionError:
        raise malformed_json(body) from None
    records = next((value for name, value in document if name == "records"), [document])
    for fields in [document, *records]:
        headers = [value for name, value in fields if name == "headers" and isinstance(value, _Pairs)]
        for pairs in [fields, *headers]:
            names: list[str] = [name for name, _ in pairs]
            if len(names) != len(set(names)):
                return max(names, key=names.count)
    return None


class _Pairs(list[tuple[str, Any]]):
    """An object with its fields in order, duplicates included."""


def key_bytes(raw: bytes) -> bytes | None:
    """Returns a string key as its text, any other JSON as the bytes sent; None for null, which means no key."""
    if raw[:1] == b'"':
        return raw[1:-1] if b"\\" not in raw else msgspec.json.decode(raw, type=str).encode()
    return None if raw == _NULL else raw


def _value_bytes(raw: bytes) -> bytes | None:
    return None if raw == _NULL else raw


def _take_base64(row: IncomingRow, record: RecordObject, position: int) -> None:
    """Sets the less common forms: binary keys and values. A record without any value is an error, not a tombstone."""
    if record.key_base64 is not UNSET:
        _reject_both(record.key, "key", position)
        row.key = _base64(record.key_base64, "key_base64", position)
    if record.value_base64 is not UNSET:
        _reject_both(record.value, "value", position)
        row.value = _base64(record.value_base64, "value_base64", position)
    elif record.value is UNSET:
        raise Problem("invalid_body", f"record {position} has no value; a tombstone says null", record=position)


def _take_text(row: IncomingRow, record: RecordObject) -> None:
    """Sets a text in the form in which fetch shows it: the stored value has no quotes and escapes."""
    if record.value_base64 is UNSET and row.value is not None:
        row.value = msgspec.json.decode(row.value, type=str).encode()


def _headers(headers: dict[str, Raw], position: int) -> Headers:
    """Returns `{"name": "text" | {"base64": "…"} | null | [several]}` as pairs, in order."""
    pairs: Headers = []
    for name, raw in headers.items():
        if name.startswith(RESERVED_PREFIX):
            text = f"record {position}: header {name!r}: names that begin with {RESERVED_PREFIX} are the log's own"
            raise Problem("invalid_body", text, record=position)
        value = _header_json(name, raw, position)
        for one in value if isinstance(value, list) else [value]:
            pairs.append((name, _header_value(name, one, position)))
    return pairs


def _header_json(name: str, raw: Raw, position: int) -> object:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:  # valid JSON, but for example a number that is too large
        raise Problem("invalid_body", f"record {position}: header {name!r}: {error}", record=position) from None


def _header_value(name: str, value: object, position: int) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str() as text, **rest} if not rest:
            return _base64(text, f"header {name}", position)
    text = f'record {position}: header {name!r} is neither a text nor {{"base64": "…"}}'
    raise Problem("invalid_body", text, record=position)


def _base64(text: str, name: str, position: int) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # characters outside of ASCII are not a binascii.Error
        raise Problem("invalid_body", f"record {position}: {name} is not base64", record=position) from None


def _reject_both(given: Raw | UnsetType, name: str, position: int) -> None:
    if given is not UNSET:
        raise Problem("invalid_body", f"record {position} has both {name} and {name}_base64", record=position)


def _timestamp(given: int | str | UnsetType | None, position: int) -> int | None:
    if given is None or isinstance(given, UnsetType):
        return None
    try:
        return time_of_body(given)
    except ValueError as error:
        text = f"record {position}: timestamp {given!r} {error}"
        raise Problem("invalid_body", text, record=position) from None


def _partition(given: int | UnsetType | None, position: int) -> int | None:
    if given is None or isinstance(given, UnsetType):
        return None
    if given < 0:
        raise Problem("invalid_body", f"record {position}: partition {given} is negative", record=position)
    return given
