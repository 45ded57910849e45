"""Adds the context of a sampled request to its records, so that a trace goes on where they are consumed.

Never fails a request: records that would exceed a limit of their topic with the headers are stored without them. Stored
batches are not touched. A CloudEvent with the extension attribute `traceparent` has its context in that.
"""

from __future__ import annotations

from engine.topic_settings import TopicSettings
from gateway.produce.batching import (
    OWN_BYTES,
    RECORD_OVERHEAD_BYTES,
    Destination,
    Headers,
    Incoming,
    IncomingObjects,
    IncomingRow,
    IncomingSpans,
    row_bytes,
)
from gateway.tracing.trace_context import TRACEPARENT, TRACESTATE, TraceContext

SAMPLED = "sampled"  # the choice of `trace_headers`
_HAS_CONTEXT = frozenset({TRACEPARENT, "ce_traceparent"})


def takes_context(context: TraceContext | None, settings: TopicSettings) -> bool:
    """Returns whether the records of a request get its context."""
    return context is not None and context.is_sampled and settings.trace_headers == SAMPLED


def with_context(incoming: Incoming, context: TraceContext, to: Destination) -> Incoming:
    """Returns records with the context of their request; unchanged if there is no room for it."""
    if isinstance(incoming, IncomingSpans):
        rows = [IncomingRow(None, value, headers) for _, _, value, headers in incoming.rows(0, None)]
    else:
        rows = incoming.plainly() if isinstance(incoming, IncomingObjects) else incoming
    return rows_with_context(rows, context, to) or incoming


def rows_with_context(rows: list[IncomingRow], context: TraceContext, to: Destination) -> list[IncomingRow]:
    """Returns the records with the context, but for those that have one; unchanged if there is no room for it."""
    added: Headers = [(TRACEPARENT, context.traceparent.encode())]
    if context.state:
        added.append((TRACESTATE, context.state.encode()))
    settings = to.settings
    sizes = [row_bytes((0, row.key or to.key, row.value, [*row.headers, *added])) for row in rows]
    room = min(settings.batch_bytes_max, settings.batch_decoded_bytes_max) - OWN_BYTES
    if not sizes or max(sizes) > settings.record_bytes_max or sum(sizes) + RECORD_OVERHEAD_BYTES * len(sizes) > room:
        return rows
    return [row if _has_context(row) else _with(row, added) for row in rows]


def _has_context(row: IncomingRow) -> bool:
    return any(name.lower() in _HAS_CONTEXT for name, _ in row.headers)


def _with(row: IncomingRow, added: Headers) -> IncomingRow:
    return IncomingRow(row.key, row.value, [*row.headers, *added], row.timestamp, row.partition)
