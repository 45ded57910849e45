"""Which requests have a span, and what becomes of spans that are not exported in time."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from gateway.tracing.exporter import Exporter, NotNow, Refused
from gateway.tracing.otlp import encode_spans
from gateway.tracing.span import SERVER, TEXT_MAX
from gateway.tracing.trace_context import TraceContext
from gateway.tracing.tracer import EXPORT_SPANS, SPANS_MAX, SpanRing, Tracer

PARENT = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", is_sampled=True)
UNSAMPLED = PARENT._replace(is_sampled=False)


def tracer(ratio: float = 0.0, per_second: int = 100) -> Tracer:
    return Tracer(SpanRing(), Random(1), ratio, per_second, (1, 0), lambda: 0)


def test_a_sampled_parent_decides_and_without_one_the_ratio():
    child = tracer().begin("name", SERVER, PARENT, 0.0)
    assert child is not None
    assert (child.context.trace_id, child.parent_id) == (PARENT.trace_id, PARENT.span_id)
    assert child.context.span_id not in (PARENT.span_id, "0" * 16)
    assert tracer(1.0).begin("name", SERVER, UNSAMPLED, 0.0) is None
    assert tracer(0.0).begin("name", SERVER, None, 0.0) is None
    tenth = tracer(0.1, 100_000)
    sampled = sum(tenth.begin("name", SERVER, None, 0.0) is not None for _ in range(10_000))
    assert 850 < sampled < 1150


def test_a_flood_of_sampled_headers_is_bounded_and_counted():
    flooded = tracer(per_second=100)
    begun = sum(flooded.begin("name", SERVER, PARENT, at / 10_000) is not None for at in range(20_000))
    assert 200 <= begun <= 302, "two seconds, and the burst"
    assert flooded.ring.dropped == 20_000 - begun


def test_the_ring_drops_its_oldest_spans_and_counts_them():
    ring = SpanRing()
    rich = Tracer(ring, Random(1), 0.0, 1_000_000, (1, 0), lambda: 0)
    for number in range(SPANS_MAX + 10):
        assert ring.has_enough.is_set() == (number >= EXPORT_SPANS)
        span = rich.begin(str(number), SERVER, PARENT, 0.0)
        assert span is not None
        rich.end(span)
    assert ring.dropped == 10
    taken = ring.take()
    assert (len(taken), taken[0].name) == (EXPORT_SPANS, "10")


@pytest.mark.parametrize("pause_s", [None, 7.0])
async def test_spans_that_cannot_be_sent_now_stay_and_those_refused_are_dropped(pause_s):
    sent: list[int] = []
    failures: list[Exception] = [NotNow("away", pause_s), NotNow("away", pause_s), Refused("malformed")]

    async def send(spans) -> None:
        if failures:
            raise failures.pop(0)
        sent.append(len(spans))

    source = tracer()
    exporter = Exporter(source.ring, send)
    span = source.begin("name", SERVER, PARENT, 0.0)
    assert span is not None
    source.end(span)
    assert await exporter.export() == (pause_s or 0.0)
    assert await exporter.export() == (pause_s or 0.0)
    assert source.ring.dropped == 0
    assert await exporter.export() is None
    assert (source.ring.dropped, sent) == (1, [])
    source.end(span)
    assert await exporter.export() is None
    assert sent == [1]


async def test_a_silent_collector_does_not_hold_up_the_stop(monkeypatch):
    monkeypatch.setattr("gateway.tracing.exporter.STOP_S", 0.01)

    async def send(_) -> None:
        await asyncio.Event().wait()

    source = tracer()
    exporter = Exporter(source.ring, send)
    exporter.start()
    span = source.begin("name", SERVER, PARENT, 0.0)
    assert span is not None
    source.end(span)
    await exporter.stop()
    assert len(source.ring) == 0, "they were taken, and are lost with the process"


async def test_spans_that_cannot_be_sent_ever_hold_up_neither_later_ones_nor_the_stop():
    async def send(_) -> None:
        raise UnicodeError("label too long")  # of the collector's host

    source = tracer()
    exporter = Exporter(source.ring, send)
    span = source.begin("name", SERVER, PARENT, 0.0)
    assert span is not None
    source.end(span)
    exporter.start()
    await exporter.stop()
    assert (source.ring.dropped, len(source.ring)) == (1, 0)


def test_texts_that_clients_choose_are_bounded_and_utf8():
    span = tracer().begin("x" * 4000, SERVER, PARENT, 0.0)
    assert span is not None
    span.attributes |= {"long": "x" * 4000, "bytes": "a\udcff", "number": 7}  # as gateway/wire has the byte ff
    record = span.record(0.0, 0.0)
    assert (record.name, record.attributes["long"]) == ("x" * TEXT_MAX, "x" * TEXT_MAX)
    assert (record.attributes["bytes"], record.attributes["number"]) == ("a?", 7)
    assert encode_spans([record], {})
