"""Stored records as JSON, for consumers that ask for JSON or NDJSON.

A value that is JSON is given as the bytes that were stored, never parsed into objects: it is only checked, in bulk, to
be exactly one JSON value, so that no stored byte can change the meaning of the document around it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from engine.format.batch import Record
from gateway.http.media_types import is_json, is_text, media_type_of

_VALUES = msgspec.json.Decoder(Raw)
_ENCODER = msgspec.json.Encoder()
_LINE_ENDS_TO_SPACES = bytes.maketrans(b"\r\n", b"  ")
_NO_HEADERS: dict[str, Any] = {}
_NULL = Raw(b"null")


class RecordOut(Struct, omit_defaults=True, gc=False):
    """One record of an answer. Of each pair of fields one is given."""

    offset: int
    timestamp: int
    key: str | UnsetType | None = UNSET
    value: Raw | str | UnsetType = UNSET
    headers: dict[str, Any] | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET


class Undecodable(Struct):
    """Stands for a stored batch whose records cannot be read, so that a consumer can go on behind it."""

    offset: int
    last_offset: int
    error: str = "undecodable"


Out = RecordOut | Undecodable


def records_out(records: Sequence[Record], form: str | None) -> list[RecordOut]:
    """Records in the form asked for: `json`, `text`, `base64`, or None for what each record's media type says."""
    values = _values(records, form)
    return [_record_out(record, value) for record, value in zip(records, values, strict=True)]


def encode_document(fields: dict[str, Any], records: Sequence[Out]) -> bytes:
    """`{…,"records":[…]}`."""
    return _ENCODER.encode({**fields, "records": records})


def encode_lines(records: Sequence[Out]) -> bytes:
    return _ENCODER.encode_lines(records)


def bare_value(out: Out) -> bytes:
    """The value alone, as a line of `ndjson=values`."""
    if isinstance(out, Undecodable):
        return _ENCODER.encode(out)
    if out.value is not UNSET:
        return bytes(out.value) if isinstance(out.value, Raw) else _ENCODER.encode(out.value)
    return _ENCODER.encode({"value_base64": out.value_base64})


def _record_out(record: Record, value: Raw | str | bytes) -> RecordOut:
    key, headers = record.key, record.headers
    try:
        text: str | UnsetType | None = None if key is None else key.decode()
    except UnicodeDecodeError:
        text = UNSET
    out = RecordOut(
        record.offset,
        record.timestamp,
        text,
        UNSET if isinstance(value, bytes) else value,
        _headers(headers) if headers else _NO_HEADERS,
    )
    if text is UNSET:
        assert key is not None
        out.key_base64 = base64.b64encode(key).decode()
    if isinstance(value, bytes):
        out.value_base64 = base64.b64encode(value).decode()
    return out


def _values(records: Sequence[Record], form: str | None) -> Iterable[Raw | str | bytes]:
    """A Raw for JSON, a str for text, bytes for what can only be shown as base64."""
    if form == "base64":
        return [_NULL if record.value is None else record.value for record in records]
    if form == "text":
        return [as_text(record.value) for record in records]
    if form is None and any(record.headers for record in records):
        return [_by_media_type(record) for record in records]
    values = [b"null" if record.value is None else record.value for record in records]
    if _are_json(values):
        return map(Raw, values)
    return map(as_json, values)


def _are_json(values: list[bytes]) -> bool:
    """Whether each is exactly one JSON value on one line. Joined by newlines they must decode to as many."""
    joined = b"\n".join(values)
    if joined.count(b"\n") != len(values) - 1 or b"\r" in joined:
        return False
    try:
        decoded: list[Any] = _VALUES.decode_lines(joined)
    except (msgspec.DecodeError, RecursionError):
        return False
    return len(decoded) == len(values) and b"\n".join(decoded) == joined and _is_utf8(joined)


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def as_json(value: bytes) -> Raw | bytes:
    """The value, if it is one JSON value, as something that can stand in a document; else the bytes."""
    try:
        if not _is_utf8(value) or not msgspec.json.decode(value, type=Raw):
            return value
    except (msgspec.DecodeError, RecursionError):
        return value
    return Raw(value.translate(_LINE_ENDS_TO_SPACES))  # they stand between tokens; NDJSON would break there


def as_text(value: bytes | None) -> Raw | str | bytes:
    """The value as text, if it is UTF-8; else the bytes."""
    if value is None:
        return _NULL
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _by_media_type(record: Record) -> Raw | str | bytes:
    """JSON where the record's `content-type` says JSON or says nothing; text for text; base64 for the rest."""
    if record.value is None:
        return _NULL
    media_type = media_type_of(record.headers)
    if is_json(media_type):
        return as_json(record.value)
    return as_text(record.value) if is_text(media_type) else record.value


def _headers(pairs: Sequence[tuple[str, bytes | None]]) -> dict[str, Any]:
    """The form that produce takes: texts, `{"base64": …}` for other bytes, an array for a name that repeats."""
    headers: dict[str, Any] = {}
    for name, value in pairs:
        shown: Any = None if value is None else as_text(value)
        if isinstance(shown, bytes):
            shown = {"base64": base64.b64encode(shown).decode()}
        if name not in headers:
            headers[name] = shown
        elif isinstance(headers[name], list):
            headers[name].append(shown)
        else:
            headers[name] = [headers[name], shown]
    return headers
