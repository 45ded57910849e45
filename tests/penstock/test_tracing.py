"""Spans of the client: send, and process with a link to it."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import SpanKind

from penstock import Client, OutgoingRecord, Tracing
from penstock.errors import ClientError
from penstock.tracing import OPEN_SPANS_MAX
from tests.scenarios.gateways import in_process


def traced(sampler=ALWAYS_ON) -> tuple[Tracing, InMemorySpanExporter]:
    provider, spans = TracerProvider(sampler=sampler), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return Tracing(provider), spans


async def test_a_record_carries_the_context_of_its_send_and_process_links_to_it(tmp_path):
    tracing, spans = traced()
    async with in_process(tmp_path) as gateway, Client(f"http://127.0.0.1:{gateway.port}") as client:
        await gateway.create("orders")
        async with client.producer(interceptors=[tracing]) as producer:
            for value in range(2):
                await (await producer.send("orders", value))
        async for record in client.consume("orders", follow=False):
            with tracing.process(record):
                assert record.trace_context.keys() == {"traceparent"}
    sent, processed = spans.get_finished_spans()[:2], spans.get_finished_spans()[2:]
    assert {span.name for span in sent} == {"send orders"}
    assert {(span.kind, span.name) for span in processed} == {(SpanKind.CONSUMER, "process orders")}
    links = [link.context.span_id for span in processed for link in span.links]
    assert links == [span.context.span_id for span in sent]
    assert [span.attributes["penstock.offset"] for span in sent] == [0, 1]
    assert repr(tracing) == "Tracing(open=0)"


def test_unsampled_records_and_those_with_a_context_stay_as_they_are():
    unsampled, _ = traced(ALWAYS_OFF)
    record = OutgoingRecord("t", 1)
    assert unsampled.before_send(record) is record
    tracing, _ = traced()
    own = OutgoingRecord("t", 1, headers={"Traceparent": "x"})
    assert tracing.before_send(own) is own


def test_a_failed_record_is_an_error_and_spans_that_never_get_a_result_are_bounded(monkeypatch):
    monkeypatch.setattr("penstock.tracing.OPEN_SPANS_MAX", 2)
    tracing, spans = traced()
    records = [tracing.before_send(OutgoingRecord("t", number)) for number in range(3)]
    assert len(spans.get_finished_spans()) == 1
    tracing.on_delivery(records[2], ClientError("lost"))
    assert not spans.get_finished_spans()[1].status.is_ok
    assert OPEN_SPANS_MAX > 2


def test_without_the_package_the_error_names_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"penstock\[otel\]"):
        Tracing()
