"""The trace of a delivery: the context that its request carries, and its span."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gateway.fetch.record_json import Undecodable
from gateway.groups.model.values import Slot
from gateway.subscriptions.core.outcome import Outcome
from gateway.subscriptions.rendering import Pushed
from gateway.tracing import conventions
from gateway.tracing.current import current
from gateway.tracing.span import CLIENT, LINKS_MAX
from gateway.tracing.trace_context import TRACEPARENT, TRACESTATE, TraceContext, record_context


class DeliverySpan:
    """One attempt. Records of the same context have it as their parent; a span links to those of several."""

    def __init__(self, records: Sequence[Pushed], slot: Slot, subscription: str) -> None:
        contexts = list(dict.fromkeys(filter(None, map(_context, records))))
        self._parent = contexts[0] if len(contexts) == 1 else None
        tracer, began = current.tracer, time.perf_counter()
        self._span = None if tracer is None else tracer.begin("push", CLIENT, self._parent, began)
        if self._span is None:
            return
        if self._parent is None:
            self._span.links = contexts[:LINKS_MAX]
        self._span.attributes |= {
            conventions.SYSTEM: conventions.OUR_SYSTEM,
            conventions.OPERATION_NAME: "push",
            conventions.OPERATION_TYPE: "send",
            conventions.TOPIC: slot.topic,
            conventions.PARTITION: str(slot.partition),
            conventions.SUBSCRIPTION: subscription,
            conventions.RECORDS: len(records),
            conventions.BASE_OFFSET: records[0].offset,
            conventions.METHOD: "POST",
        }

    def __repr__(self) -> str:
        return f"DeliverySpan({self._span})"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request."""
        context = self._parent if self._span is None else self._span.context
        if context is None:
            return {}
        state = {TRACESTATE: context.state} if context.state else {}
        return {TRACEPARENT: context.traceparent, **state}

    def end(self, outcome: Outcome) -> None:
        """Ends the span, if there is one."""
        if self._span is None or current.tracer is None:
            return
        if outcome.status is not None:
            self._span.attributes[conventions.STATUS] = outcome.status
        if not outcome.is_delivered:
            self._span.attributes[conventions.ERROR] = "no_answer" if outcome.status is None else str(outcome.status)
            self._span.is_error = True
        current.tracer.end(self._span)


def _context(record: Pushed) -> TraceContext | None:
    return None if isinstance(record, Undecodable) else record_context(record.headers)
