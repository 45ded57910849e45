"""The context that requests name."""

from __future__ import annotations

import pytest

from gateway.tracing.trace_context import TraceContext, parse_traceparent, read_context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00_{TRACE}_{SPAN}_01",
        f" {SAMPLED}",
        f"{SAMPLED}\n",
        f"{SAMPLED},{SAMPLED}",
        f"00-{TRACE}-{SPAN}-٠١",
        f"01-{TRACE}-{SPAN}-01more",
        "0" * 100_000,
    ],
)
def test_a_malformed_traceparent_is_none(text):
    assert parse_traceparent(text) is None


def test_the_flag_says_whether_it_is_sampled_and_a_later_version_may_say_more():
    assert parse_traceparent(SAMPLED) == TraceContext(TRACE, SPAN, is_sampled=True)
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-02") == TraceContext(TRACE, SPAN, is_sampled=False)
    later = parse_traceparent(f"01-{TRACE}-{SPAN}-03-more")
    assert later is not None
    assert later.traceparent == SAMPLED


def test_two_of_them_are_none_and_a_state_is_joined_up_to_its_bound():
    parent = ("Traceparent", SAMPLED)
    assert read_context([parent, parent]) is None
    assert read_context([("tracestate", "a=1")]) is None
    joined = read_context([parent, ("tracestate", "a=1"), ("Tracestate", "b=2")])
    assert joined is not None
    assert joined.state == "a=1,b=2"
    for unusable in ("a=" + "x" * 511, "a=\x7f", "a=é"):
        assert read_context([parent, ("tracestate", unusable)]) == TraceContext(TRACE, SPAN, is_sampled=True)
