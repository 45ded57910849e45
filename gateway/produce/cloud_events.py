"""Decodes CloudEvents 1.0: structured, in batches, or in binary mode.

Each becomes a record as in the Kafka protocol binding: an attribute `name` is the record header `ce_name`,
`datacontenttype` the header `content-type`, `partitionkey` is also the key, and the data is the value; an event without
data has no value. A JSON value is stored as the bytes that were sent. An invalid event is rejected, and the problem
names the attribute. Not checked: that URIs are well formed. The inverse: gateway/fetch/cloud_events.py.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Raw

from gateway.http.json_limits import DEFAULT_LIMITS, JsonLimits, check_utf8, check_value, malformed_json
from gateway.http.problems import Problem
from gateway.http.times import rfc3339_ms
from gateway.produce.batching import Headers, IncomingRow

EVENT = "application/cloudevents+json"
EVENT_BATCH = "application/cloudevents-batch+json"
HTTP_PREFIX = "ce-"
RECORD_PREFIX = "ce_"
VERSION = "1.0"
REQUIRED = ("specversion", "id", "source", "type")
STRINGS = (*REQUIRED, "subject", "dataschema", "datacontenttype", "time")  # in every form: CloudEvents 1.0.2, section 3
CONTENT_TYPE = "content-type"
RESERVED = ("data", "datacontenttype")  # stored in other ways than as a header `ce_…`

NAME_SHOWN_MAX = 100  # of a name that a problem repeats; the specification's own have at most 20
NAME = re.compile(r"[a-z0-9]+")
MEDIA_TYPE = re.compile(r"[^\s/;]+/([^\s/;]+)\s*(?:;.*)?")
CHARSET = re.compile(r";\s*charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)
_ENCODINGS = {"utf-8": "utf-8", "utf8": "utf-8", "us-ascii": "ascii", "iso-8859-1": "latin-1", "latin1": "latin-1"}
FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_INTEGER = re.compile(rb"-?[0-9]+")

_EVENT = msgspec.json.Decoder(dict[str, Raw])
_EVENTS = msgspec.json.Decoder(list[dict[str, Raw]])
_ENCODER = msgspec.json.Encoder()


def decode_event(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> list[IncomingRow]:
    """Returns the one event of structured mode.

    Raises Problem invalid_utf8, malformed_json, invalid_body, json_too_complex.
    """
    return [_structured(_decode(body, _EVENT), 0, limits)]


def decode_event_batch(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> list[IncomingRow]:
    """Returns the events of a batch, in order. Raises as decode_event does. An empty batch has no record."""
    return [_structured(event, position, limits) for position, event in enumerate(_decode(body, _EVENTS))]


def binary_attributes(headers: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the attributes in a request's headers, None without any. Raises Problem invalid_header, invalid_body."""
    for header in headers:  # the whole cost for other requests; any() takes three times as long
        if header[:3].lower() == HTTP_PREFIX:
            break
    else:
        return None
    attributes: dict[str, str] = {}
    for header, value in headers.items():
        if header[:3].lower() != HTTP_PREFIX:
            continue
        name = header[3:].lower()
        if name in attributes or name in RESERVED:
            raise _invalid(0, name, f"the header {header} is not allowed, or there twice")
        attributes[name] = _decode_header(header, value)
    return attributes


def binary_event(attributes: dict[str, str], content_type: str | None, body: bytes) -> list[IncomingRow]:
    """Returns the event of binary mode: its attributes, and the body as its data. Raises Problem invalid_body."""
    return [_row(attributes, content_type, body or None, 0)]


def is_json(content_type: str) -> bool:
    """Returns whether the type declares JSON as CloudEvents define it: `*/json` or `*/*+json`."""
    match = MEDIA_TYPE.fullmatch(content_type)
    return match is not None and (match[1].lower() == "json" or match[1].lower().endswith("+json"))


def charset_of(content_type: str) -> str:
    match = CHARSET.search(content_type)
    return "utf-8" if match is None else match[1].lower()


def _decode(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    check_utf8(body)
    try:
        events = decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem("invalid_body", str(error)) from None
    except (msgspec.DecodeError, RecursionError):
        raise malformed_json(body, 1 if decoder is _EVENTS else None) from None
    _reject_duplicates(body, events)
    return events


def _reject_duplicates(body: bytes, events: Any) -> None:
    """Raises Problem for a dropped duplicate: without one, the events are as long as the body, up to spacing."""
    encoded = _ENCODER.encode(events)
    if len(encoded) == len(body) or len(msgspec.json.format(encoded, indent=-1)) == len(
        msgspec.json.format(body, indent=-1)
    ):
        return
    try:
        document = json.loads(body, object_pairs_hook=_Pairs, parse_int=str, parse_float=str)
    except RecursionError:
        raise malformed_json(body) from None
    for position, event in enumerate([document] if isinstance(document, _Pairs) else document):
        names = [name for name, _ in event]
        if len(names) != len(set(names)):
            raise _invalid(position, max(names, key=names.count), "it is given twice")


class _Pairs(list[tuple[str, Any]]):
    """An object with its members in order, duplicates included."""


def _structured(event: dict[str, Raw], position: int, limits: JsonLimits) -> IncomingRow:
    data, data_base64 = event.pop("data", None), event.pop("data_base64", None)
    attributes = {}
    for name, raw in event.items():
        given = bytes(raw)
        if name in STRINGS and given[:1] != b'"' and given != b"null":
            raise _invalid(position, name, "it must be a string")
        text = _attribute(given, name, position)
        if text is not None:
            attributes[name] = text
    content_type = attributes.pop("datacontenttype", None)
    if data_base64 is not None and bytes(data_base64) != b"null":
        if data is not None:
            raise _invalid(position, "data_base64", "it excludes data")
        return _row(attributes, content_type, _unbase64(bytes(data_base64), position), position)
    if data is None:
        return _row(attributes, content_type, None, position)
    if content_type is None:
        content_type = "application/json"  # the default of the format, required outside of JSON
    check_value(data, limits, position)
    value = bytes(data) if is_json(content_type) else _text(bytes(data), content_type, position)
    return _row(attributes, content_type, value, position)


def _row(attributes: dict[str, str], content_type: str | None, value: bytes | None, position: int) -> IncomingRow:
    _check(attributes, content_type, position)
    headers: Headers = [(RECORD_PREFIX + name, text.encode()) for name, text in attributes.items()]
    if content_type is not None:
        headers.append((CONTENT_TYPE, content_type.encode()))
    key = attributes.get("partitionkey")
    return IncomingRow(None if key is None else key.encode(), value, headers)


def _check(attributes: dict[str, str], content_type: str | None, position: int) -> None:
    for name in REQUIRED:
        if name not in attributes:
            raise _invalid(position, name, "it is required")
    for name, text in attributes.items():
        if not NAME.fullmatch(name):
            raise _invalid(position, name, "names have lower-case letters a to z and digits only")
        if not text:
            raise _invalid(position, name, "it is empty")
        if FORBIDDEN.search(text):
            raise _invalid(position, name, "it holds a character that is not allowed")
    if attributes["specversion"] != VERSION:
        raise _invalid(position, "specversion", f"it is {attributes['specversion'][:20]!r}; this takes {VERSION}")
    if "time" in attributes and rfc3339_ms(attributes["time"]) is None:
        raise _invalid(position, "time", f"{attributes['time']!r} is not a time of RFC 3339")
    if content_type is not None and (not MEDIA_TYPE.fullmatch(content_type) or FORBIDDEN.search(content_type)):
        raise _invalid(position, "datacontenttype", f"{content_type!r} is not a media type")


def _attribute(raw: bytes, name: str, position: int) -> str | None:
    """Returns the text of an attribute's value, of any JSON type; null counts as missing."""
    if raw[:1] == b'"':
        return msgspec.json.decode(raw, type=str)
    if raw == b"null":
        return None
    if raw in (b"true", b"false"):
        return raw.decode()
    if _INTEGER.fullmatch(raw) and len(raw) <= 11 and -(2**31) <= int(raw) < 2**31:
        return str(int(raw))
    raise _invalid(position, name, "attributes are texts, booleans or integers of 32 bits")


def _unbase64(raw: bytes, position: int) -> bytes:
    try:
        return base64.b64decode(msgspec.json.decode(raw, type=str), validate=True)
    except (msgspec.ValidationError, ValueError):
        raise _invalid(position, "data_base64", "it is not base64") from None


def _text(raw: bytes, content_type: str, position: int) -> bytes | None:
    """Returns data that is not JSON: a text, in the encoding that its type names."""
    charset = charset_of(content_type)
    try:
        text = msgspec.json.decode(raw, type=str | None)
        return None if text is None else text.encode(_ENCODINGS[charset])
    except msgspec.ValidationError:
        hint = "datacontenttype is not JSON, so data must be a text; bytes go into data_base64"
        raise _invalid(position, "data", hint) from None
    except (KeyError, UnicodeError):
        raise _invalid(position, "data", f"it cannot be encoded as {charset}; use data_base64") from None


def _decode_header(header: str, value: str) -> str:
    """Unquotes a quoted text, then decodes percent signs once. Raises Problem invalid_header."""
    value = value.strip(" \t")
    if value[:1] == '"':
        if not re.fullmatch(r'"(?:[^"\\]|\\.)*"', value):
            raise Problem("invalid_header", f"{header} begins with a quote and does not end with it")
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote_to_bytes(value.encode("ascii")).decode()
    except UnicodeError:
        text = f"{header} is not ASCII, or not UTF-8 after percent-decoding"
        raise Problem("invalid_header", text) from None


def _invalid(position: int, name: str, what: str) -> Problem:
    name = name[:NAME_SHOWN_MAX]
    return Problem("invalid_body", f"event {position}: attribute {name}: {what}", record=position, attribute=name)
