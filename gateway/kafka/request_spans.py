"""The spans of requests of Kafka's protocol, which carries contexts in the headers of records alone.

A produce goes on with the trace of its first sampled record, and links to those of further ones. Batches are searched
as bytes and never decoded: a context has one form (OpenTelemetry's instrumentations of Kafka write no other), and a
value that has the same bytes is a choice of the client as well. Compressed batches are not opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from engine.format.batch_header import HEADER_BYTES, Codec, read_header
from gateway.kafka.context import KafkaContext
from gateway.kafka.errors import Error
from gateway.kafka.requests import KafkaRequest
from gateway.server.request_spans import call_in_span, end_answered
from gateway.tracing import conventions
from gateway.tracing.span import LINKS_MAX, SERVER
from gateway.tracing.trace_context import TRACEPARENT, TraceContext, parse_traceparent
from gateway.tracing.tracer import Tracer

SEARCHED_BYTES = 16 * 1024  # of a batch, as large as clients of Kafka make them by default
_MARK = b"\x16"  # the length of the name as a varint: rare in text, and found by itself twenty times as fast
_NAME = _MARK + TRACEPARENT.encode()
_MARKS_MAX = 8  # a batch with more of them is binary: then a search for the whole name is faster
# A header of a record: the length of its name and of its value (as varints), and a sampled context of version 00.
_SAMPLED = re.compile(rb"\x16traceparent\x6e(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf])")


class KafkaSpans:
    """The spans of the requests of one process. Only made where tracing is on."""

    def __init__(self, tracer: Tracer, context: KafkaContext) -> None:
        self._tracer = tracer
        self._context = context

    def __repr__(self) -> str:
        return f"KafkaSpans({self._tracer})"

    def begin(self, request: KafkaRequest) -> None:
        """Begins the span of a request if it is sampled."""
        contexts: list[TraceContext] | None = None
        if request.api.name == "Produce":
            contexts = record_contexts(records for _, batches in request.message.topics for _, records in batches)
            if contexts is not None and not contexts:  # its producer has decided that none is sampled
                return
        parent = contexts[0] if contexts else None
        span = request.span = self._tracer.begin(request.api.name, SERVER, parent, request.began)
        if span is not None and contexts:
            span.links = contexts[1:]

    def call(self, request: KafkaRequest) -> Any:
        """Calls the handler of a request that has a span. Raises what it raises."""
        assert request.span is not None, request
        return call_in_span(request.span, request.api.handler, request, request.api.context)

    def end(self, request: KafkaRequest, names: Iterable[str], *, is_answered: bool = True) -> None:
        """Ends the span of a request. `names`: the topics that it is for; those that do not exist are not shown."""
        span, message = request.span, request.message
        assert span is not None, request
        attributes = span.attributes
        attributes[conventions.SYSTEM] = conventions.KAFKA_SYSTEM
        attributes[conventions.OPERATION_NAME] = request.api.name
        attributes[conventions.OPERATION] = request.api.operation
        attributes[conventions.PROTOCOL_NAME] = conventions.KAFKA_SYSTEM
        attributes[conventions.PROTOCOL_VERSION] = str(request.version)
        if request.client.client_id:
            attributes[conventions.CLIENT_ID] = request.client.client_id
        if (kind := conventions.KAFKA_OPERATION_TYPES.get(request.api.name)) is not None:
            attributes[conventions.OPERATION_TYPE] = kind
        if group := getattr(message, "group_id", None):
            attributes[conventions.GROUP] = group
        topics = [name for name in names if self._context.topics.get(name) is not None]
        if len(topics) == 1:
            attributes[conventions.TOPIC] = topics[0]
            span.name = f"{request.api.name} {topics[0]}"
        if not is_answered:
            attributes[conventions.ERROR] = "client_disconnected"
            self._tracer.end(span)
            return
        if request.error is not Error.NONE:
            attributes[conventions.ERROR] = request.error.name
            span.is_error = request.error is Error.UNKNOWN_SERVER_ERROR
        end_answered(self._tracer, self._context.metrics, request.api.operation, span)


def record_contexts(batches: Iterable[memoryview | None]) -> list[TraceContext] | None:
    """Returns the different sampled contexts of records, a bounded number. None: no record has a context."""
    contexts: dict[TraceContext, None] = {}
    has_context = False
    for records in batches:
        if records is None or len(records) < HEADER_BYTES or read_header(records).codec != Codec.NONE:
            continue
        searched = bytes(records[:SEARCHED_BYTES])
        begin = _find_name(searched)
        if begin < 0:
            continue
        has_context = True
        for match in _SAMPLED.finditer(searched, begin):
            if (context := parse_traceparent(match[1].decode())) is not None:
                contexts[context] = None
            if len(contexts) > LINKS_MAX:
                return list(contexts)
    return list(contexts) if has_context else None


def _find_name(data: bytes) -> int:
    """Returns where the first header with a context begins; below 0: there is none."""
    begin = -1
    for _ in range(_MARKS_MAX):
        begin = data.find(_MARK, begin + 1)
        if begin < 0 or data.startswith(_NAME, begin):
            return begin
    return data.find(_NAME, begin)
