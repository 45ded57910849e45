"""The context of a trace as headers carry it: W3C Trace Context, level 1. Pure.

A malformed context counts as none, as the recommendation demands: it never fails a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
STATE_BYTES_MAX = 512  # vendors propagate at least these (W3C Trace Context 3.3.1.5); longer ones are left out
SAMPLED = 1
EVENT_PREFIX = "ce_"  # of an attribute of a CloudEvent in the headers of a record
# 4 fields at fixed positions. A later version may have more behind them; version ff is invalid, and so are zeros.
_FORM = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_STATE = re.compile(r"[ -~\t]*")


class TraceContext(NamedTuple):
    """The span that a request or a record is of, as hexadecimal digits. `state` is the tracestate."""

    trace_id: str
    span_id: str
    is_sampled: bool
    state: str = ""

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{SAMPLED if self.is_sampled else 0:02x}"


def parse_traceparent(text: str) -> TraceContext | None:
    """Parses a traceparent. None: it is malformed."""
    match = _FORM.fullmatch(text)
    if match is None or (match[1] == "00" and match[5] is not None):
        return None
    return TraceContext(match[2], match[3], bool(int(match[4], 16) & SAMPLED))


def read_context(headers: Iterable[tuple[str, str]]) -> TraceContext | None:
    """Returns the context of a request. None: it has none, a malformed one, or several."""
    parents, states = [], []
    for name, value in headers:
        lower = name.lower()
        if lower == TRACEPARENT:
            parents.append(value)
        elif lower == TRACESTATE:
            states.append(value)
    context = parse_traceparent(parents[0]) if len(parents) == 1 else None
    if context is None or not states:
        return context
    state = ",".join(states)
    return context._replace(state=state) if len(state) <= STATE_BYTES_MAX and _STATE.fullmatch(state) else context


def record_context(headers: Iterable[tuple[str, bytes | None]]) -> TraceContext | None:
    """Returns the context of a record. A CloudEvent has it in its extension attribute, which comes first."""
    by_name = {name.lower(): value for name, value in headers}
    for name, state_name in ((EVENT_PREFIX + TRACEPARENT, EVENT_PREFIX + TRACESTATE), (TRACEPARENT, TRACESTATE)):
        if (value := by_name.get(name)) is not None:
            pairs = [(TRACEPARENT, value), (TRACESTATE, by_name.get(state_name) or b"")]
            return read_context((key, text.decode("latin-1")) for key, text in pairs)
    return None
