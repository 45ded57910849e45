"""Decodes the records of v2: `{"records":[{"key":…,"value":…,"partition":…}]}`, in JSON or base64.

A JSON key or value is stored as the bytes that the client sent, a text with its quotes: so readers of REST Proxy find
what they expect, and a key is placed as REST Proxy places it. A missing value is null, which is a tombstone.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

import penstock_codec
from gateway.http.json_limits import JsonLimits, check_utf8, check_value, malformed_json
from gateway.http.problems import Problem
from gateway.produce.batching import Headers, Incoming, IncomingObjects, IncomingRow, IncomingSpans

_NULL = b"null"
_NO_HEADERS: Headers = []
_Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
E = TypeVar("E", bound="_Envelope")


class _Envelope(Struct, forbid_unknown_fields=True, kw_only=True):
    """The schemas are those of other formats: here they have no effect."""

    key_schema: Any = None
    key_schema_id: Any = None
    value_schema: Any = None
    value_schema_id: Any = None


class JsonRecord(Struct, forbid_unknown_fields=True, gc=False):
    key: Raw | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    partition: _Number | None = None


class _JsonRecords(_Envelope, forbid_unknown_fields=True, kw_only=True):
    records: list[JsonRecord]


class _BinaryRecord(Struct, forbid_unknown_fields=True, gc=False):
    key: bytes | None = None
    value: bytes | None = None
    partition: _Number | None = None


class _BinaryRecords(_Envelope, forbid_unknown_fields=True, kw_only=True):
    records: list[_BinaryRecord]


_JSON, _BINARY = msgspec.json.Decoder(_JsonRecords), msgspec.json.Decoder(_BinaryRecords)


def decode_json(body: bytes, limits: JsonLimits) -> Incoming:
    """Returns the records of a body in JSON. Raises Problem malformed_json, unknown_field, invalid_body, …"""
    native = penstock_codec.native
    found = None if native is None else native.find_objects(body, False, limits.depth_max, limits.digits_max, True)
    if found is None or not found[2]:
        return _decode_plainly(body, limits)
    are_bare, table, count, longest, unescaped = found
    if are_bare:
        return IncomingSpans(body, table, count, longest)
    return IncomingObjects(body + unescaped, table, count, False, partial(_decode_plainly, body, limits))


def _decode_plainly(body: bytes, limits: JsonLimits) -> list[IncomingRow]:
    """Returns what `decode_json` returns, without the compiled codec. Raises as it does."""
    check_utf8(body)
    harmless, rows = limits.harmless_bytes, []
    for position, record in enumerate(_decoded(body, _JSON).records):
        key, value = record.key, record.value
        for part in (key, value):
            if part is not UNSET and len(part) > harmless:
                check_value(part, limits, position)
        rows.append(IncomingRow(_stored(key), _stored(value), _NO_HEADERS, None, record.partition))
    return rows


def decode_binary(body: bytes, limits: JsonLimits) -> Incoming:
    """Returns the records of a body in base64. Raises as `decode_json`."""
    check_utf8(body)
    return [
        IncomingRow(record.key, record.value, _NO_HEADERS, None, record.partition)
        for record in _decoded(body, _BINARY).records
    ]


DECODERS = {"json": decode_json, "binary": decode_binary}


def _stored(given: Raw | UnsetType) -> bytes | None:
    if given is UNSET:
        return None
    data = bytes(given)
    return None if data == _NULL else data


def _decoded(body: bytes, decoder: msgspec.json.Decoder[E]) -> E:
    if not body.strip():
        raise Problem("invalid_body", 'the body is empty; expected {"records":[{"value":…}]}')
    return decode_body(body, decoder)


S = TypeVar("S")


def decode_body(body: bytes, decoder: msgspec.json.Decoder[S], levels: int = 2) -> S:
    """Returns a body as the decoder's type. Raises Problem malformed_json, unknown_field, invalid_body."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        code = "unknown_field" if "unknown field" in str(error) else "invalid_body"
        raise Problem(code, str(error).replace("Object contains", "there is an")) from None
    except (msgspec.DecodeError, RecursionError):
        raise malformed_json(body, levels) from None
