"""Decides which requests have a span, and keeps those that have ended until they are exported.

A client chooses the sampled flag, so a token bucket bounds what clients can ask for. The ring is bounded too: the
oldest span goes first. Both kinds of loss are counted. Does no I/O; exporter.py takes the spans.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from random import Random

from gateway.quotas.bucket import Bucket
from gateway.tracing.conventions import NODE, SHARD
from gateway.tracing.span import Attribute, Span, SpanRecord
from gateway.tracing.trace_context import TraceContext

SPANS_MAX = 2048  # a megabyte; at 100 spans a second, 20 seconds of a collector that does not answer
EXPORT_SPANS = 512  # these are exported before their time
_BURST_S = 1.0


class SpanRing:
    """The spans that wait for their export. `has_enough`: they are not to wait for its time."""

    def __init__(self) -> None:
        self.dropped = 0
        self.has_enough = asyncio.Event()
        self._spans: deque[SpanRecord] = deque(maxlen=SPANS_MAX)

    def __repr__(self) -> str:
        return f"SpanRing({len(self._spans)}, dropped={self.dropped})"

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, spans: Iterable[SpanRecord]) -> None:
        for span in spans:
            if len(self._spans) == SPANS_MAX:
                self.dropped += 1
            self._spans.append(span)
        if len(self._spans) >= EXPORT_SPANS:
            self.has_enough.set()

    def take(self) -> list[SpanRecord]:
        """Removes the oldest spans, as many as one export takes."""
        spans = self._spans
        return [spans.popleft() for _ in range(min(len(spans), EXPORT_SPANS))]

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each number."""
        yield "penstock_spans_dropped_total", DROPPED_TEXT, self.dropped


DROPPED_TEXT = "Spans of sampled requests that were not exported: above the rate, no room, or refused by the collector"


class Tracer:
    """The spans of one process."""

    def __init__(
        self,
        ring: SpanRing,
        random: Random,
        ratio: float,
        spans_per_second: float,
        process: tuple[int, int],
        now_ns: Callable[[], int],
    ) -> None:
        """`ratio` of the requests without a context are sampled. `process`: the ids of its node and of its shard.

        `now_ns` returns the nanoseconds since 1970.
        """
        self.ring = ring
        self._random = random
        self.chance = random.random
        self.ratio = ratio
        self._bucket = Bucket(spans_per_second, _BURST_S)
        self._process: dict[str, Attribute] = {NODE: process[0], SHARD: process[1]}
        self.now_ns = now_ns

    def __repr__(self) -> str:
        return f"Tracer(ratio={self.ratio}, {self.ring})"

    def begin(
        self, name: str, kind: int, parent: TraceContext | None, now: float, *, is_drawn: bool = False
    ) -> Span | None:
        """Returns a span if it is sampled: as its parent is; without a parent by chance, if there is room.

        `is_drawn`: the caller has compared `chance` with the `ratio`, without a call for each request.
        """
        if parent is None:
            if not is_drawn and (not self.ratio or self.chance() >= self.ratio):
                return None
        elif not parent.is_sampled:
            return None
        if self._bucket.balance(now) < 1:
            self.ring.dropped += 1
            return None
        self._bucket.debit(1, now)
        span_id = f"{self._random.getrandbits(64) or 1:016x}"
        if parent is None:
            context = TraceContext(f"{self._random.getrandbits(128) or 1:032x}", span_id, is_sampled=True)
            span = Span(name, kind, now, context)
        else:
            span = Span(name, kind, now, parent._replace(span_id=span_id), parent.span_id)
        span.attributes |= self._process
        return span

    def end(self, span: Span) -> None:
        """Ends a span now, and keeps it for the export."""
        now = time.perf_counter()
        self.ring.add([span.record(now, self.now_ns() / 1e9 - now)])
