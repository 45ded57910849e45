"""Renders the records of a delivery as CloudEvents, and names the delivery."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from engine.format.batch import Record
from gateway.fetch.cloud_events import BINARY, events_out, render_events
from gateway.fetch.record_json import Undecodable
from gateway.http.problems import Problem
from gateway.produce.cloud_events import EVENT, EVENT_BATCH
from gateway.subscriptions.core.definition import Form

_FORMS = {"structured": EVENT, "binary": BINARY, "batch": EVENT_BATCH}


Pushed = Record | Undecodable


def render_delivery(records: Sequence[Pushed], form: Form, source: str) -> tuple[dict[str, str], bytes]:
    """Returns headers and body. An event whose attributes are too large for headers goes in structured mode."""
    events = [record if isinstance(record, Undecodable) else events_out([record], source)[0] for record in records]
    media_type = _FORMS[form]
    try:
        headers, body = render_events(events, media_type, source)
    except Problem:
        media_type = EVENT
        headers, body = render_events(events, media_type, source)
    if media_type == BINARY:
        return headers, body
    return {"Content-Type": f"{media_type}; charset=utf-8", **headers}, body


def message_id(topic_id: str, partition: int, records: Sequence[Pushed]) -> str:
    """Returns the id of a delivery: the same for each of its attempts, another for other records."""
    first, last = records[0].offset, records[-1].offset
    first_id = f"{topic_id}-{partition}-{first}"
    if len(records) == 1:
        return first_id
    return f"{first_id}-{last}-{crc32(b','.join(b'%d' % record.offset for record in records)):08x}"
