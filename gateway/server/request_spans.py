"""The spans of requests: what they begin with, and what is known at their end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from multidict import istr

from gateway.http.request import Request
from gateway.http.response import Response
from gateway.metrics.metrics import Metrics
from gateway.routing.partitions import Topics
from gateway.tracing import conventions
from gateway.tracing.current import current
from gateway.tracing.span import SERVER, Span
from gateway.tracing.trace_context import TRACEPARENT, read_context
from gateway.tracing.tracer import Tracer

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
# The stages of a produce by the events that end them, and the events that begin them.
_STAGES = (
    ("body", "enter"),
    ("decode", "body"),
    ("queue", "decode"),
    ("append", "queue"),
    ("flush", "append"),
    ("ack", "decode"),
)
_TRACEPARENT = istr(TRACEPARENT)  # the look-up of an istr takes half the time of a plain text


class RequestSpans:
    """The spans of the requests of one process. `tracer`: None if tracing is off; contexts are read all the same."""

    def __init__(self, tracer: Tracer | None, topics: Topics, metrics: Metrics) -> None:
        self.tracer = tracer
        self._topics = topics
        self._metrics = metrics

    def begin(self, request: Request) -> None:
        """Notes the context of a request, and begins its span. Without a header it is sampled by chance already."""
        parent = None
        if has_context := _TRACEPARENT in request.headers:
            request.trace = parent = read_context(request.head.headers)
        if self.tracer is not None:
            request.span = span = self.tracer.begin("", SERVER, parent, request.began, is_drawn=not has_context)
            if span is not None:  # most requests have none
                span.name = f"{request.method} {request.route.path}".rstrip()

    def end(self, request: Request, span: Span, response: Response | None) -> None:
        """Ends the span of a request. None: its client has left before the answer."""
        assert self.tracer is not None, span
        attributes = span.attributes
        attributes[conventions.METHOD] = request.method
        attributes[conventions.PROTOCOL_VERSION] = request.version
        attributes[conventions.OPERATION] = operation = request.route.operation
        attributes[conventions.REQUEST_ID] = request.id
        if request.route.path:
            attributes[conventions.ROUTE] = request.route.path
        if request.content_length is not None:
            attributes[conventions.REQUEST_BYTES] = request.content_length
        if (client_id := request.headers.get("Penstock-Client-Id")) is not None:
            attributes[conventions.CLIENT_ID] = client_id
        if (kind := conventions.OPERATION_TYPES.get(operation)) is not None:
            attributes[conventions.SYSTEM] = conventions.OUR_SYSTEM
            attributes[conventions.OPERATION_NAME] = operation
            attributes[conventions.OPERATION_TYPE] = kind
        self._name(request, attributes)
        if response is None:
            attributes[conventions.ERROR] = "client_disconnected"
        else:
            attributes[conventions.STATUS] = response.status
            if response.rest is None and not response.is_streamed:
                attributes[conventions.RESPONSE_BYTES] = response.size_bytes
            if response.problem is not None:
                attributes[conventions.ERROR] = response.problem
            span.is_error = response.status >= 500
            if not response.is_streamed:
                end_answered(self.tracer, self._metrics, operation, span)
                return
        self.tracer.end(span)

    def _name(self, request: Request, attributes: dict[str, str | int | bool]) -> None:
        """Adds the names of the path; that of a topic only if it exists, as in the log."""
        names = request.names
        if (topic := names.get("topic")) is not None and self._topics.get(topic) is not None:
            attributes[conventions.TOPIC] = topic
            if (partition := names.get("partition")) is not None:
                attributes[conventions.PARTITION] = partition
        if (group := names.get("group")) is not None:
            attributes[conventions.GROUP] = group


def call_in_span(span: Span, handler: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Calls the handler of a request that has a span."""
    span.event("enter", time.perf_counter())
    return current.run(span, lambda: handler(*arguments))


def end_answered(tracer: Tracer, metrics: Metrics, operation: str, span: Span) -> None:
    """Ends the span of a request that is answered, which is the exemplar of its times from now on."""
    tracer.end(span)
    trace_id, at_s = span.context.trace_id, tracer.now_ns() / 1e9
    metrics.request_exemplars.note(operation, time.perf_counter() - span.began, trace_id, at_s)
    ends = dict(span.events)
    for stage, before in _STAGES:
        if stage in ends and before in ends:
            metrics.stage_exemplars.note(stage, ends[stage] - ends[before], trace_id, at_s)
