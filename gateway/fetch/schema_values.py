"""Shows values of a registry as JSON: in answers whose values are base64, those that name a schema are replaced.

It works on answers and not on the records, so that reads, caches and other processes know nothing of registries. A
value that names a schema has its id in the answer, and stays base64 if the schema is not to be had or does not fit.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
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
DECODED_FACTOR = 8  # decoding a byte takes as long as coding so many
SHOWN_BYTES_MAX = 32 << 20  # of an answer; a small value may have a large text
_DOCUMENT = msgspec.json.Decoder(dict[str, Raw])
_RECORDS = msgspec.json.Decoder(list[dict[str, Raw]])
_TEXT = msgspec.json.Decoder(str)


class _Answer(NamedTuple):
    """An answer without its records, None for lines; and its records."""

    document: dict[str, Any] | None
    records: list[dict[str, Raw]]


async def decode_values(
    bodies: Sequence[bytes], media_type: str, schemas: RegisteredSchemas | None, offload: Offload
) -> list[bytes]:
    """Returns the parts of an answer, of JSON or of NDJSON records, with their values decoded.

    Waits for schemas a few seconds.
    """
    size_bytes = sum(map(len, bodies))
    answers, named = await offload.by_size(size_bytes, lambda: _parse_answers(bodies, media_type))
    if schemas is not None:
        missing = [schema_id for schema_id in sorted(named) if schemas.find(schema_id) is None][:IDS_MAX]
        if missing:
            with suppress(Problem):  # these values stay base64
                await schemas.fetch(missing)
    return await offload.by_size(DECODED_FACTOR * size_bytes, lambda: _encode_answers(answers, schemas))


def _parse_answers(bodies: Sequence[bytes], media_type: str) -> tuple[list[_Answer], set[int]]:
    """Returns the answers, and the schemas that their values name."""
    answers = [_parse_answer(body, media_type) for body in bodies]
    named = (schema_id_of(_value_of(record)) for answer in answers for record in answer.records)
    return answers, {schema_id for schema_id in named if schema_id is not None}


def _parse_answer(body: bytes, media_type: str) -> _Answer:
    if media_type != JSON:
        return _Answer(None, [_DOCUMENT.decode(line) for line in body.splitlines()])
    document: dict[str, Any] = _DOCUMENT.decode(body)
    return _Answer(document, _RECORDS.decode(document.pop("records")))


def _value_of(record: dict[str, Raw]) -> bytes:
    text = record.get("value_base64")
    return b"" if text is None else base64.b64decode(_TEXT.decode(text))


def _encode_answers(answers: Sequence[_Answer], schemas: RegisteredSchemas | None) -> list[bytes]:
    bodies, left = [], SHOWN_BYTES_MAX
    for answer in answers:
        body, left = _encode_answer(answer, schemas, left)
        bodies.append(body)
    return bodies


def _encode_answer(answer: _Answer, schemas: RegisteredSchemas | None, left: int) -> tuple[bytes, int]:
    """Returns the body, and how many bytes of values may follow."""
    shown = list[dict[str, Any]]()
    for record in answer.records:
        is_bytes = "value_base64" in record
        schema_id, text = _text_of(record, schemas if left > 0 else None) if is_bytes else (None, None)
        decoded: dict[str, Any] = dict(record)
        if schema_id is not None:
            decoded["schema_id"] = schema_id
        if text is not None:
            del decoded["value_base64"]
            decoded["value"] = text
            left -= len(bytes(text))
        shown.append(decoded)
    if answer.document is None:
        return msgspec.json.Encoder().encode_lines(shown), left
    return msgspec.json.encode({**answer.document, "records": shown}), left


def _text_of(record: dict[str, Raw], schemas: RegisteredSchemas | None) -> tuple[int | None, Raw | None]:
    """Returns the schema that a value names, and its JSON; None for what it has not."""
    value = _value_of(record)
    schema_id = schema_id_of(value)
    if schema_id is None:
        text = as_json(value)
        return None, text if isinstance(text, Raw) else None
    asked = None if schemas is None else schemas.find(schema_id)
    if asked is None or asked.found is None:
        return schema_id, None
    try:
        text = as_json(asked.found.values.text(value))
    except Undecodable:
        return schema_id, None
    return schema_id, text if isinstance(text, Raw) else None
