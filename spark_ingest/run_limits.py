"""The limits of one run, records, bytes, span and wall clock, and the rest of them after each plan. Values only.

A limit ends a run between two plans, so nothing is half done; the next run goes on there. Plans are made no larger
than what is left. A plan that a run resumes counts, and is never cut. With a span of timestamps a run has one plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_ingest.plan import Plan


@dataclass(frozen=True, slots=True)
class RunLimits:
    """None means unlimited. `size_bytes` are bytes of the log."""

    records: int | None = None
    size_bytes: int | None = None
    seconds: float | None = None
    span_ms: int | None = None  # of timestamps of each partition

    def begin(self, now_ms: int) -> Budget:
        until_ms = None if self.seconds is None else now_ms + int(self.seconds * 1000)
        return Budget(self.records, self.size_bytes, until_ms, self.span_ms)


@dataclass(frozen=True, slots=True)
class Budget:
    """The rest of the limits of a run."""

    records: int | None
    size_bytes: int | None
    until_ms: int | None
    span_ms: int | None = None
    is_span_taken: bool = False

    def after(self, plan: Plan) -> Budget:
        weight_bytes = sum(piece.weight_bytes for task in plan.tasks for piece in task.slices)
        return replace(
            self,
            records=None if self.records is None else max(0, self.records - plan.record_range),
            size_bytes=None if self.size_bytes is None else max(0, self.size_bytes - weight_bytes),
            is_span_taken=self.span_ms is not None,
        )

    def is_spent(self, now_ms: int) -> bool:
        is_late = self.until_ms is not None and now_ms >= self.until_ms
        return is_late or self.is_span_taken or self.records == 0 or self.size_bytes == 0
