"""Encodes keys and values by schemas of the registry, for the formats `avro`, `jsonschema` and `protobuf`.

A request names a schema by its id, or has it as a text, which is registered for the subject of the topic. NeedsSchemas
says what this process does not know yet; the work begins again once it does.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from engine.encodings.framed_values import FramedValues
from engine.encodings.registry import schema_id_of
from engine.encodings.undecodable import Undecodable
from gateway.http.json_limits import JsonLimits, check_utf8, check_value
from gateway.produce.batching import Incoming, IncomingRow
from gateway.produce.value_checks import NeedsSchemas
from gateway.registry.registered_schemas import RegisteredSchemas, SchemaText
from gateway.rest_proxy.errors import CONVERSION, INVALID_SCHEMA, NO_KEY_SCHEMA, NO_VALUE_SCHEMA, Refusal
from gateway.rest_proxy.records import JsonRecord, decode_body

KINDS = {"avro": "AVRO", "jsonschema": "JSON", "protobuf": "PROTOBUF"}  # of a format, in the registry
ENCODING_COST = 100  # encoding a byte takes as long as decoding so many of JSON
_NULL = b"null"


class _Records(Struct, forbid_unknown_fields=True, kw_only=True):
    records: list[JsonRecord]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


_RECORDS = msgspec.json.Decoder(_Records)


class Encoding(NamedTuple):
    """The format of the keys and values of a topic. `schemas`: None without a registry."""

    format: str
    topic: str
    schemas: RegisteredSchemas | None

    def subject(self, part: str) -> str:
        return f"{self.topic}-{part}"


class Encoder(NamedTuple):
    """The schema of keys or values."""

    schema_id: int
    values: FramedValues

    def encode(self, given: Raw | UnsetType, limits: JsonLimits, position: int, part: str) -> bytes | None:
        """Returns JSON by the schema, behind its id. Raises Refusal, Problem."""
        text = b"null" if given is UNSET else bytes(given)
        if text == _NULL:
            return None
        if len(text) > limits.harmless_bytes:
            check_value(text, limits, position)
        try:
            data = self.values.encode(text)
        except Undecodable as error:
            why = f"record {position}: the {part} does not follow schema {self.schema_id}: {error.message}"
            raise Refusal(CONVERSION, why) from None
        return b"\0" + self.schema_id.to_bytes(4, "big") + data


def find_encoder(encoding: Encoding, part: str, schema_id: int | None, schema: str | None) -> Encoder:
    """Returns the encoder of the given id or text. Raises NeedsSchemas, Refusal."""
    schemas, kind = encoding.schemas, KINDS[encoding.format]
    if schemas is None:
        raise Refusal(INVALID_SCHEMA, f"{encoding.format} needs a schema registry, and this node has none configured")
    if schema_id is None:
        assert schema is not None, part
        text = SchemaText(encoding.subject(part), kind, schema)
        schema_id = schemas.find_id(text)
        if schema_id is None:
            raise NeedsSchemas((), (text,))
    elif not 0 <= schema_id < 2**31:
        raise Refusal(INVALID_SCHEMA, f"{part}_schema_id is {schema_id}, and no id of a schema")
    asked = schemas.find(schema_id)
    if asked is None:
        raise NeedsSchemas((schema_id,))
    if asked.found is None:
        raise Refusal(INVALID_SCHEMA, asked.reason)
    if asked.found.kind != kind:
        raise Refusal(INVALID_SCHEMA, f"schema {schema_id} is of the type {asked.found.kind}, and the {part} is {kind}")
    return Encoder(schema_id, asked.found.values)


def decode_by_schema(encoding: Encoding, body: bytes, limits: JsonLimits) -> Incoming:
    """Returns the records of a body of v2. Raises Problem, Refusal, NeedsSchemas."""
    check_utf8(body)
    given = decode_body(body, _RECORDS)
    are_there = {
        "key": any(one.key is not UNSET and bytes(one.key) != _NULL for one in given.records),
        "value": any(one.value is not UNSET and bytes(one.value) != _NULL for one in given.records),
    }
    named = {"key": (given.key_schema_id, given.key_schema), "value": (given.value_schema_id, given.value_schema)}
    encoders: dict[str, Encoder] = {}
    for part, code in (("key", NO_KEY_SCHEMA), ("value", NO_VALUE_SCHEMA)):
        if not are_there[part]:
            continue
        if named[part] == (None, None):
            raise Refusal(code, f"the request has {part}s, and neither {part}_schema nor {part}_schema_id")
        encoders[part] = find_encoder(encoding, part, *named[part])
    rows = []
    for position, record in enumerate(given.records):
        key, value = (
            encoders[part].encode(one, limits, position, part) if part in encoders else None
            for part, one in (("key", record.key), ("value", record.value))
        )
        rows.append(IncomingRow(key, value, [], None, record.partition))
    return rows


def named_ids(rows: Incoming) -> tuple[int | None, int | None]:
    """Returns the schemas of the keys and of the values of a body, as its answer names them."""
    assert isinstance(rows, list), rows
    keys = (schema_id_of(row.key) for row in rows if row.key is not None)
    values = (schema_id_of(row.value) for row in rows if row.value is not None)
    return next(keys, None), next(values, None)
