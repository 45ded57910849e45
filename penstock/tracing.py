"""Spans of OpenTelemetry for records: `send` when a record is sent, `process` when it is consumed.

Each record of a traced producer carries the context of its span in its headers. A consumer's span links to it, because
it may process records of many producers. Needs `penstock[otel]`, which is the API alone: an application brings its SDK.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.producer.lines import pairs_of
from penstock.records import TRACE_HEADERS, Record

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

    from penstock.producer.preparation import OutgoingRecord

OPEN_SPANS_MAX = 10_000  # of records on their way; beyond it the oldest span ends without a result
SYSTEM = {"messaging.system": "penstock"}


class Tracing:
    """Makes spans: an interceptor of producers (`client.producer(interceptors=[tracing])`), and `process`."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """Without a provider it uses the global one. Raises ImportError without `penstock[otel]`."""
        try:
            from opentelemetry import propagate, trace
        except ImportError as error:
            raise ImportError("spans need the package opentelemetry-api: pip install 'penstock[otel]'") from error
        self._trace, self._propagate = trace, propagate
        self._tracer = trace.get_tracer("penstock", tracer_provider=tracer_provider)
        self._open: OrderedDict[str, Span] = OrderedDict()  # by the traceparent of their records

    def __repr__(self) -> str:
        return f"Tracing(open={len(self._open)})"

    def before_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Begins the span of a record, and adds its context to the headers if it is sampled and they have none."""
        pairs = pairs_of(record.headers or ())
        if any(name.lower() in TRACE_HEADERS for name, _ in pairs):
            return record
        attributes = SYSTEM | {
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": record.topic,
        }
        kind = self._trace.SpanKind.PRODUCER
        span = self._tracer.start_span(f"send {record.topic}", kind=kind, attributes=attributes)
        if not span.get_span_context().trace_flags.sampled:
            return record
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, self._trace.set_span_in_context(span))
        added = [(name, carrier[name]) for name in TRACE_HEADERS if name in carrier]
        if not added:  # the application has another propagator
            span.end()
            return record
        self._open[added[0][1]] = span
        if len(self._open) > OPEN_SPANS_MAX:
            self._open.popitem(last=False)[1].end()
        return record._replace(headers=[*pairs, *added])

    def on_delivery(self, record: OutgoingRecord, result: Any) -> None:
        """Ends the span of a record with its position or its error."""
        context = next((str(value) for name, value in pairs_of(record.headers or ()) if name == TRACE_HEADERS[0]), "")
        span = self._open.pop(context, None)
        if span is None:
            return
        if isinstance(result, Exception):
            span.set_attribute("error.type", type(result).__name__)
            span.set_status(self._trace.StatusCode.ERROR, str(result))
        else:
            span.set_attribute("messaging.destination.partition.id", str(result.partition))
            span.set_attribute("penstock.offset", result.offset)
        span.end()

    @contextmanager
    def process(self, record: Record) -> Iterator[Span]:
        """Opens the span in which a record is processed: `with tracing.process(record):`. It links to the record's."""
        context = self._propagate.extract(record.trace_context)
        sent = self._trace.get_current_span(context).get_span_context()
        attributes = SYSTEM | {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": record.topic,
            "messaging.destination.partition.id": str(record.partition),
        }
        with self._tracer.start_as_current_span(
            f"process {record.topic}",
            kind=self._trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=[self._trace.Link(sent)] if sent.is_valid else [],
        ) as span:
            span.set_attribute("penstock.offset", record.offset)
            yield span
