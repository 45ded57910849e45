"""The tracing of this process: its tracer, and the span whose code runs at this moment.

A link asks it which span a call is made for, so that no stage passes spans on. It is set around each synchronous step
of a request that has a span, and not in a context variable: those are inherited by timers and group commits, which
outlive the request and serve others.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from engine.runtime.timed_coroutine import TimedCoroutine
from gateway.tracing.span import Span
from gateway.tracing.tracer import Tracer

T = TypeVar("T")


class Current:
    """`tracer`: None if tracing is off. `span`: None while code without a span runs."""

    __slots__ = ("span", "tracer")

    def __init__(self) -> None:
        self.tracer: Tracer | None = None
        self.span: Span | None = None

    def __repr__(self) -> str:
        return f"Current({self.span}, {self.tracer})"

    def run(self, span: Span | None, step: Callable[[], T]) -> T:
        """Runs a synchronous step of a span."""
        before, self.span = self.span, span
        try:
            return step()
        finally:
            self.span = before


current = Current()


class TracedCoroutine(TimedCoroutine[T]):
    """A coroutine whose steps are those of a span."""

    def __init__(self, work: Coroutine[Any, Any, T], span: Span) -> None:
        super().__init__(work, _ignore)
        self._span = span

    def send(self, value: Any) -> Any:
        return current.run(self._span, lambda: super(TracedCoroutine, self).send(value))

    def throw(self, *error: Any) -> Any:
        return current.run(self._span, lambda: super(TracedCoroutine, self).throw(*error))


def _ignore(_now_s: float, _seconds: float) -> None: ...
