"""Spans of Kafka's requests: a produce goes on with the trace of its records, others are sampled by chance."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from engine.format import batch as record_batch
from gateway.kafka.request_spans import SEARCHED_BYTES, record_contexts
from gateway.tracing.span import LINKS_MAX
from tests.gateway.kafka.served import batch, connected, fetch, kafka_node, produce
from tests.gateway.tracing.stub_collector import attributes_of, events_of, stub_collector
from tests.waiting import until

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def traced(*contexts: tuple[str, str, str], value: bytes = b"1", codec=record_batch.Codec.NONE) -> bytes:
    """Return a batch with a record for each trace, span and flags, as OpenTelemetry's Kafka instrumentation writes."""
    rows = [
        (1000, None, value, [("a", b"b"), ("traceparent", f"00-{trace}-{span}-{flags}".encode())])
        for trace, span, flags in contexts
    ]
    return bytes(record_batch.encode(rows, codec))


def contexts_of(data: bytes) -> list[tuple[str, str]] | None:
    contexts = record_contexts([memoryview(data), None, memoryview(b"short")])
    return None if contexts is None else [(context.trace_id, context.span_id) for context in contexts]


def test_the_sampled_contexts_of_records_are_found():
    other = "b" * 32, "c" * 16
    data = traced((TRACE, SPAN, "00"), (TRACE, SPAN, "01"), (*other, "03"), (TRACE, SPAN, "01"))
    assert contexts_of(data) == [(TRACE, SPAN), other]
    assert contexts_of(traced((TRACE, SPAN, "00"))) == []
    assert contexts_of(traced(("0" * 32, SPAN, "01"))) == [], "an id of zeros is malformed"
    assert contexts_of(batch(b"1")) is None
    assert contexts_of(traced((TRACE, SPAN, "01"), codec=record_batch.Codec.GZIP)) is None
    assert contexts_of(traced((TRACE, SPAN, "01"), value=bytes(SEARCHED_BYTES))) is None
    many = [(f"{number:032x}", SPAN, "01") for number in range(1, 10_000)]
    found = contexts_of(traced(*many))
    assert found is not None
    assert len(found) == LINKS_MAX + 1


async def spans_of(tmp_path: Path, data: bytes, acks: int = -1, **settings: object) -> list[dict]:
    """Return the spans of a produce and a fetch."""
    async with stub_collector() as collector:
        options = {"otlp_endpoint": collector.url, **settings}
        async with kafka_node(tmp_path, **options) as (node, _), connected(node) as client:
            await node.shard.create_topic("orders", 1, 1, {})
            client.send("Produce", 9, produce("orders", {0: data}, acks))
            if acks:
                await asyncio.wait_for(client.receive(), 10)
            else:
                client.forget_sent()
            client.send("Fetch", 12, fetch("orders", {0: 0}))
            await asyncio.wait_for(client.receive(), 10)
        return collector.spans


async def test_a_produce_goes_on_with_the_trace_of_its_records(tmp_path, caplog):
    caplog.set_level(logging.INFO, "penstock.requests")
    other = "b" * 32, "c" * 16
    data = traced((TRACE, SPAN, "01"), (*other, "01"))
    (span,) = await spans_of(tmp_path, data, request_log=True)
    assert (span["name"], span["kind"], span["traceId"], span["parentSpanId"]) == ("Produce orders", 2, TRACE, SPAN)
    assert span["links"] == [{"traceId": other[0], "spanId": other[1]}]
    assert events_of(span) == ["enter", "body", "decode", "queue", "append", "flush", "ack"]
    attributes = attributes_of(span)
    assert (attributes["messaging.system"], attributes["messaging.operation.type"]) == ("kafka", "send")
    assert (attributes["messaging.destination.name"], attributes["messaging.destination.partition.id"]) == (
        "orders",
        "0",
    )
    assert (attributes["messaging.batch.message_count"], attributes["penstock.base_offset"]) == ("2", "0")
    assert (attributes["penstock.acks"], attributes["messaging.client.id"]) == ("all", "test")
    assert "error.type" not in attributes
    (line,) = [line for line in caplog.records if hasattr(line, "trace_id")]
    assert (line.trace_id, line.span_id) == (TRACE, span["spanId"])


@pytest.mark.parametrize("acks", [0, 1])
async def test_each_request_may_be_sampled_by_chance(tmp_path, acks):
    spans = await spans_of(tmp_path, batch(b"1"), acks, trace_ratio=1.0)
    by_name = {span["name"]: span for span in spans}
    assert by_name.keys() >= {"Produce orders", "Fetch orders"}
    assert "parentSpanId" not in by_name["Fetch orders"]
    assert attributes_of(by_name["Fetch orders"])["messaging.operation.type"] == "receive"


async def test_a_producer_that_does_not_sample_has_no_span(tmp_path):
    spans = await spans_of(tmp_path, traced((TRACE, SPAN, "00")), trace_ratio=1.0)
    assert "Produce orders" not in {span["name"] for span in spans}


async def test_refused_and_abandoned_requests_have_a_span_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.tracing.exporter.EXPORT_S", 0.01)
    async with stub_collector() as collector:
        settings = {"otlp_endpoint": collector.url, "trace_ratio": 1.0}
        async with kafka_node(tmp_path, **settings) as (node, _):
            await node.shard.create_topic("orders", 1, 1, {})
            async with connected(node) as client:
                client.send("Produce", 9, produce("no-such", {0: traced((TRACE, SPAN, "01"))}))
                await asyncio.wait_for(client.receive(), 10)
                client.send("Fetch", 12, fetch("orders", {0: 0}, max_wait_ms=60_000))
                await until(lambda: next(iter(node.long_polls.gauges()))[2])
            await until(lambda: len(collector.spans) >= 2)
    refused, abandoned = collector.spans
    assert (refused["name"], attributes_of(refused)["error.type"]) == ("Produce", "UNKNOWN_TOPIC_OR_PARTITION")
    assert "no-such" not in str(refused)
    assert (abandoned["name"], attributes_of(abandoned)["error.type"]) == ("Fetch orders", "client_disconnected")
