"""A span: what became of a request, a call of another process, or a delivery, and when.

A span that is open takes events and attributes; `SpanRecord` is what is left of it, as links carry it to the worker.
Its times are those of `time.perf_counter`; a record has nanoseconds since 1970.
"""

from __future__ import annotations

from msgspec import Struct

from gateway.tracing.trace_context import TraceContext

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = range(1, 6)  # the kinds of OTLP

Attribute = str | int | bool
LINKS_MAX = 32  # of a span for many records
TEXT_MAX = 256  # of a name or an attribute: clients choose some of them, and thousands of spans wait


class SpanRecord(Struct, frozen=True, array_like=True):
    """A span that has ended. `events` have their times, `links` the trace and the span of each."""

    trace_id: str
    span_id: str
    parent_id: str
    state: str
    name: str
    kind: int
    begin_ns: int
    end_ns: int
    attributes: dict[str, Attribute]
    events: list[tuple[str, int]]
    links: list[tuple[str, str]]
    is_error: bool


class Span:
    """A span that is open."""

    __slots__ = ("attributes", "began", "context", "events", "is_error", "kind", "links", "name", "parent_id")

    def __init__(self, name: str, kind: int, began: float, context: TraceContext, parent_id: str = "") -> None:
        self.name = name
        self.kind = kind
        self.began = began
        self.context = context
        self.parent_id = parent_id
        self.attributes: dict[str, Attribute] = {}
        self.events: list[tuple[str, float]] = []
        self.links: list[TraceContext] = []
        self.is_error = False

    def __repr__(self) -> str:
        return f"Span({self.name}, {self.context.traceparent})"

    def log_fields(self) -> dict[str, object]:
        """Returns what the log line of its request says of it."""
        return {"trace_id": self.context.trace_id, "span_id": self.context.span_id}

    def event(self, name: str, at: float) -> None:
        """Adds an event: the end of a stage."""
        self.events.append((name, at))

    def record(self, ended: float, offset_s: float) -> SpanRecord:
        """Returns what is left of it. `offset_s` takes its times to those since 1970."""

        def ns(at: float) -> int:
            return round((at + offset_s) * 1e9)

        context = self.context
        return SpanRecord(
            context.trace_id,
            context.span_id,
            self.parent_id,
            context.state,
            _bounded(self.name),
            self.kind,
            ns(self.began),
            ns(ended),
            {name: _bounded(value) if type(value) is str else value for name, value in self.attributes.items()},
            [(name, ns(at)) for name, at in self.events],
            [(link.trace_id, link.span_id) for link in self.links],
            self.is_error,
        )


def _bounded(text: str) -> str:
    """Returns a text that is not too long and is UTF-8. A header may have other bytes, as halves of surrogate pairs."""
    return text[:TEXT_MAX].encode("utf-8", "replace").decode()
