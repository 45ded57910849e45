"""Renders stored records as CloudEvents: as a batch, structured, or in binary mode.

A record that holds an event (gateway/produce/cloud_events.py, or a Kafka producer that follows the binding) is returned
as that event. Any other record is wrapped in an event made for it, so that a topic of both can be read to its end;
reasons and attributes: docs/decisions/0009-records-that-are-no-cloudevents.md.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Raw

from engine.format.batch import Record
from gateway.fetch.record_json import Undecodable, as_json, as_text
from gateway.http.problems import Problem
from gateway.http.record_content_type import OWN_TYPE_HEADERS, is_text
from gateway.http.times import rfc3339_ms
from gateway.produce.cloud_events import (
    CONTENT_TYPE,
    EVENT,
    EVENT_BATCH,
    FORBIDDEN,
    HTTP_PREFIX,
    MEDIA_TYPE,
    NAME,
    RECORD_PREFIX,
    REQUIRED,
    RESERVED,
    VERSION,
    charset_of,
    decode_event,
    is_json,
)

BINARY = "binary"  # no media type of its own: the type of the data, with the attributes in headers
EVENT_FORMS = (EVENT_BATCH, EVENT, BINARY)
WRAPPED_TYPE = "penstock.record.v1"
UNDECODABLE_TYPE = "penstock.undecodable.v1"
HEADERS_BYTES_MAX = 16 * 1024  # of a binary event's attributes: what HTTP clients accept by default
_ENCODER = msgspec.json.Encoder()
_VISIBLE = "".join(map(chr, range(0x21, 0x7F))).replace('"', "").replace("%", "")


class _Structured(msgspec.Struct):
    """The member that makes an object of the JSON format an event."""

    specversion: Literal["1.0"]
    id: Annotated[str, msgspec.Meta(min_length=1)]
    source: Annotated[str, msgspec.Meta(min_length=1)]
    type: Annotated[str, msgspec.Meta(min_length=1)]


_STRUCTURED = msgspec.json.Decoder(_Structured)


class EventOut(NamedTuple):
    """An event: its attributes, the type of its data, and the data. `offset` is that of its record.

    Without attributes, the data is a whole event in structured mode.
    """

    offset: int
    attributes: dict[str, str]
    content_type: str | None
    data: bytes | None


def events_out(records: Sequence[Record], source: str) -> list[EventOut]:
    """Returns an event for each record. `source` names the partition in events that are made here."""
    return [_event(record, source) for record in records]


def render_events(events: Sequence[EventOut | Undecodable], form: str, source: str) -> tuple[dict[str, str], bytes]:
    """Returns headers and body. The forms for one event have the first one; the body is empty without an event."""
    found = [_undecodable(event, source) if isinstance(event, Undecodable) else event for event in events]
    if form == EVENT_BATCH:
        return {}, b"[" + b",".join(map(_encode, found)) + b"]"
    if not found:
        return {}, b""
    return ({}, _encode(found[0])) if form == EVENT else _binary(found[0])


def _encode(event: EventOut) -> bytes:
    """Returns the event as an object of the JSON format."""
    content_type, data = event.content_type, event.data
    if not event.attributes:
        assert data is not None
        return data
    members: dict[str, object] = {**event.attributes}
    if content_type is not None:
        members["datacontenttype"] = content_type
    if data is not None:
        shown = _shown(data, content_type)
        if isinstance(shown, bytes):
            members["data_base64"] = base64.b64encode(shown).decode()
        else:
            members["data"] = shown
    return _ENCODER.encode(members)


def _binary(event: EventOut) -> tuple[dict[str, str], bytes]:
    """Returns headers and body. Percent-encodes characters beyond visible ASCII, quotes and percent signs."""
    event = event if event.attributes else _split_attributes(event)
    headers = {HTTP_PREFIX + name: quote(text, safe=_VISIBLE) for name, text in event.attributes.items()}
    if event.content_type is not None:
        headers["Content-Type"] = event.content_type
    if sum(len(name) + len(text) for name, text in headers.items()) > HEADERS_BYTES_MAX:
        text = f"the attributes of the event at {event.offset} are too large for headers; accept {EVENT} instead"
        raise Problem("not_acceptable", text)
    return headers | OWN_TYPE_HEADERS, event.data or b""


def _split_attributes(event: EventOut) -> EventOut:
    """Returns a structured event with its attributes beside its data; unchanged if it breaks the specification."""
    assert event.data is not None
    try:
        [row] = decode_event(event.data)
    except Problem:
        return event
    attributes, content_type = {}, None
    for name, value in row.headers:
        assert value is not None
        if name == CONTENT_TYPE:
            content_type = value.decode()
        else:
            attributes[name.removeprefix(RECORD_PREFIX)] = value.decode()
    return EventOut(event.offset, attributes, content_type, row.value)


def _event(record: Record, source: str) -> EventOut:
    attributes: dict[str, str] = {}
    content_type = None
    is_event = True
    for name, value in record.headers:
        text = _text(value)
        if name.lower() == CONTENT_TYPE:
            is_type = text is not None and text.isascii() and MEDIA_TYPE.fullmatch(text)
            content_type = text if content_type is None and is_type else content_type
        elif name.startswith(RECORD_PREFIX):
            attribute = name.removeprefix(RECORD_PREFIX)
            is_new = attribute not in attributes and attribute not in RESERVED and NAME.fullmatch(attribute)
            is_event = bool(is_event and is_new and text)
            attributes[attribute] = text or ""
    if is_event and _is_complete(attributes):
        return EventOut(record.offset, attributes, content_type, record.value)
    if content_type is not None and content_type.lower().startswith(EVENT) and _is_structured(record.value):
        return EventOut(record.offset, {}, content_type, record.value)
    return _wrapped(record, content_type, source)


def _is_complete(attributes: dict[str, str]) -> bool:
    """Returns whether the attributes make an event: the node does not check what Kafka producers store."""
    if attributes.get("specversion") != VERSION or not all(name in attributes for name in REQUIRED):
        return False
    return "time" not in attributes or rfc3339_ms(attributes["time"]) is not None


def _wrapped(record: Record, content_type: str | None, source: str) -> EventOut:
    attributes = {"specversion": "1.0", "id": str(record.offset), "source": source, "type": WRAPPED_TYPE}
    moment = _rfc3339(record.timestamp)
    if moment is not None:
        attributes["time"] = moment
    key = _text(record.key)
    if key:
        attributes["partitionkey"] = key
    if content_type is None and record.value is not None and isinstance(as_json(record.value), Raw):
        content_type = "application/json"
    return EventOut(record.offset, attributes, content_type, record.value)


def _undecodable(gap: Undecodable, source: str) -> EventOut:
    attributes = {"specversion": "1.0", "id": str(gap.offset), "source": source, "type": UNDECODABLE_TYPE}
    return EventOut(gap.offset, attributes, "application/json", _ENCODER.encode(gap))


def _shown(data: bytes, content_type: str | None) -> Raw | str | bytes:
    """Returns JSON or text as the type declares; bytes if the data does not fit its type or has no type."""
    if content_type is None:
        return data
    if is_json(content_type):
        return as_json(data)
    main = content_type.partition(";")[0].strip().lower()
    if is_text(main.encode()) and charset_of(content_type) in ("utf-8", "utf8", "us-ascii"):
        return as_text(data)
    return data


def _text(value: bytes | None) -> str | None:
    """Returns None for a value that an attribute cannot have."""
    try:
        text = None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
    return None if text is None or FORBIDDEN.search(text) else text


def _is_structured(value: bytes | None) -> bool:
    if value is None or not isinstance(as_json(value), Raw):
        return False
    try:
        _STRUCTURED.decode(value)
    except msgspec.DecodeError:
        return False
    return True


def _rfc3339(timestamp_ms: int) -> str | None:
    try:
        return (
            datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (OverflowError, ValueError, OSError):
        return None
