"""Shows values of a registry as JSON: in answers whose values are base64, those that name a schema are replaced.

It works on answers and not on the records, so that reads, caches and other processes know nothing of registries. A
value that names a schema has its id in the answer, and stays base64 if the schema is not to be had or does not fit, or
if its JSON is too large: beyond VALUE_FACTOR times its bytes, or beyond what is left of the answer.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from engine.encodings.registry import schema_id_of
from engine.encodings.undecodable import Undecodable
from gateway.fetch.record_json import as_json
from gateway.fetch.request import JSON
from gateway.http.offload import Offload
from gateway.http.problems import Problem
from gateway.registry.registered_schemas import RegisteredSchemas

IDS_MAX = 32  # of one answer that are asked for
SHOWN_BYTES_MAX = 32 << 20  # of an answer; a small value may have a large text
VALUE_BYTES_MAX = 1 << 20  # of one value that is small
VALUE_FACTOR = 64  # as many bytes of JSON as a byte of a larger value may have
_DOCUMENT = msgspec.json.Decoder(dict[str, Raw])
_RECORDS = msgspec.json.Decoder(list[dict[str, Raw]])
_TEXT = msgspec.json.Decoder(str)
_NULL = Raw(b"null")


class _Part(NamedTuple):
    """The names of a part of a record: its text, its base64, its JSON by a schema, and the id of that."""

    text: str
    base64: str
    shown: str
    schema_id: str


_KEY = _Part("key", "key_base64", "key_json", "key_schema_id")
_VALUE = _Part("", "value_base64", "value", "schema_id")


class _Answer(NamedTuple):
    """An answer without its records, None for lines; and its records."""

    document: dict[str, Any] | None
    records: list[dict[str, Raw]]


async def decode_values(
    bodies: Sequence[bytes],
    media_type: str,
    schemas: RegisteredSchemas | None,
    offload: Offload,
    *,
    with_keys: bool = False,
) -> list[bytes]:
    """Returns the parts of an answer, of JSON or of NDJSON records, with their values decoded.

    Waits for schemas a few seconds. `with_keys`: `key_json` and `key_schema_id` are added for keys that name a schema.
    """
    size_bytes = sum(map(len, bodies))
    parts = (_KEY, _VALUE) if with_keys else (_VALUE,)
    answers, named = await offload.by_size(size_bytes, lambda: _parse_answers(bodies, media_type, parts))
    if schemas is not None:
        missing = [schema_id for schema_id in sorted(named) if schemas.find(schema_id) is None][:IDS_MAX]
        if missing:
            with suppress(Problem):  # these values stay base64
                await schemas.fetch(missing)
    decode = partial(_encode_answers, answers, schemas, parts)
    return await (offload.in_thread(decode) if named else offload.by_size(size_bytes, decode))


def _parse_answers(bodies: Sequence[bytes], media_type: str, parts: Sequence[_Part]) -> tuple[list[_Answer], set[int]]:
    """Returns the answers, and the schemas that their values name."""
    answers = [_parse_answer(body, media_type) for body in bodies]
    named = (schema_id_of(_bytes_of(record, part)) for answer in answers for record in answer.records for part in parts)
    return answers, {schema_id for schema_id in named if schema_id is not None}


def _parse_answer(body: bytes, media_type: str) -> _Answer:
    if media_type != JSON:
        return _Answer(None, [_DOCUMENT.decode(line) for line in body.splitlines()])
    document: dict[str, Any] = _DOCUMENT.decode(body)
    return _Answer(document, _RECORDS.decode(document.pop("records")))


def _bytes_of(record: dict[str, Raw], part: _Part) -> bytes:
    text = record.get(part.base64)
    if text is not None:
        return base64.b64decode(_TEXT.decode(text))
    text = record.get(part.text, _NULL)
    return b"" if text == _NULL else _TEXT.decode(text).encode()


def _encode_answers(
    answers: Sequence[_Answer], schemas: RegisteredSchemas | None, parts: Sequence[_Part]
) -> list[bytes]:
    bodies, left = [], SHOWN_BYTES_MAX
    for answer in answers:
        body, left = _encode_answer(answer, schemas, parts, left)
        bodies.append(body)
    return bodies


def _encode_answer(
    answer: _Answer, schemas: RegisteredSchemas | None, parts: Sequence[_Part], left: int
) -> tuple[bytes, int]:
    """Returns the body, and how many bytes of values may follow."""
    shown = list[dict[str, Any]]()
    for record in answer.records:
        decoded: dict[str, Any] = dict(record)
        for part in parts:
            value = _bytes_of(record, part)
            schema_id = schema_id_of(value)
            if schema_id is not None:
                decoded[part.schema_id] = schema_id
            elif part.base64 not in record or part is _KEY:
                continue
            text = _text_of(value, schema_id, schemas, left)
            if text is not None:
                if part is _VALUE:
                    del decoded[part.base64]
                decoded[part.shown] = text
                left -= len(bytes(text))
        shown.append(decoded)
    if answer.document is None:
        return msgspec.json.Encoder().encode_lines(shown), left
    return msgspec.json.encode({**answer.document, "records": shown}), left


def _text_of(value: bytes, schema_id: int | None, schemas: RegisteredSchemas | None, left: int) -> Raw | None:
    """Returns the JSON of a value; None if it has none that may be shown."""
    text = value
    if schema_id is not None:
        asked = None if schemas is None else schemas.find(schema_id)
        if asked is None or asked.found is None:
            return None
        try:
            text = asked.found.values.text(value, min(left, max(VALUE_BYTES_MAX, VALUE_FACTOR * len(value))))
        except Undecodable:
            return None
    shown = as_json(text)
    return shown if isinstance(shown, Raw) else None
