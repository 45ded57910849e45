"""The spans of a node: what a collector gets, and what it does not."""

from __future__ import annotations

import base64
import logging
from typing import Any

import orjson
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.gateway.tracing.stub_collector import attributes_of, events_of, stub_collector
from tests.scenarios.gateways import NDJSON, in_process
from tests.waiting import until

TRACE, CLIENT_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{CLIENT_SPAN}-01"}
PRODUCE = "POST /v1/topics/{topic}/records"


def parsed(body: bytes) -> list[Any]:
    """Returns the spans of an export by OpenTelemetry's own schema, which refuses fields that it does not know.

    OTLP has ids as hexadecimal digits, where the JSON of Protobuf has base64.
    """
    document = orjson.loads(body)
    spans = [span for of in document["resourceSpans"] for scope in of["scopeSpans"] for span in scope["spans"]]
    for span in spans:
        for holder in (span, *span.get("links", ())):
            for name in {"traceId", "spanId", "parentSpanId"} & holder.keys():
                holder[name] = base64.b64encode(bytes.fromhex(holder[name])).decode()
    request = json_format.ParseDict(document, ExportTraceServiceRequest())
    return [span for of in request.resource_spans for scope in of.scope_spans for span in scope.spans]


async def test_a_sampled_request_has_a_span_with_its_stages_below_that_of_its_client(tmp_path, caplog):
    caplog.set_level(logging.INFO, "penstock.requests")
    async with stub_collector() as collector:
        resource = {"otlp_service_name": "shop", "otlp_resource_attributes": "host.name=n%201,team=a"}
        settings = {"otlp_endpoint": collector.url, "request_log": True, **resource}
        async with in_process(tmp_path, **settings) as gateway:
            topic = await gateway.create("orders")
            await topic.post(b"1\n2\n", NDJSON, SAMPLED | {"Penstock-Client-Id": "till"})
            await topic.post(b"{", NDJSON, SAMPLED)
            await topic.fetch(0)
            await gateway.send("GET", "/v1/topics/secret-name", b"", SAMPLED)
    assert collector.resources[0] == {
        "service.name": "shop",
        "service.instance.id": "node-1",
        "host.name": "n 1",
        "team": "a",
    }
    stored, refused, unknown = collector.spans
    assert events_of(stored) == ["enter", "body", "decode", "queue", "append", "flush", "ack"]
    times = [int(event["timeUnixNano"]) for event in stored["events"]]
    assert [int(stored["startTimeUnixNano"]), *times, int(stored["endTimeUnixNano"])] == sorted(
        [int(stored["startTimeUnixNano"]), *times, int(stored["endTimeUnixNano"])]
    )
    attributes = attributes_of(stored)
    assert attributes["http.route"] == "/v1/topics/{topic}/records"
    assert attributes["messaging.destination.name"] == "orders"
    assert (attributes["messaging.batch.message_count"], attributes["penstock.base_offset"]) == ("2", "0")
    assert (attributes["messaging.operation.type"], attributes["messaging.client.id"]) == ("send", "till")
    assert (attributes["http.response.status_code"], attributes["penstock.acks"]) == ("200", "all")
    assert attributes_of(refused)["error.type"] == "malformed_ndjson"
    assert "status" not in refused, "the client made a mistake, and the server none"
    assert "secret-name" not in str(unknown)
    of_proto = parsed(collector.bodies[0])
    assert [(span.name, span.kind) for span in of_proto[:2]] == [(PRODUCE, Span.SPAN_KIND_SERVER)] * 2
    assert {(span.trace_id.hex(), span.parent_span_id.hex()) for span in of_proto} == {(TRACE, CLIENT_SPAN)}
    lines = {line.request_id: line for line in caplog.records if hasattr(line, "trace_id")}
    assert lines[attributes["penstock.request_id"]].trace_id == TRACE
    assert lines[attributes["penstock.request_id"]].span_id == stored["spanId"]
    assert len(lines) == 3


async def test_malformed_and_repeated_contexts_are_ignored(tmp_path):
    parent = SAMPLED["traceparent"]
    async with stub_collector() as collector, in_process(tmp_path, otlp_endpoint=collector.url) as gateway:
        topic = await gateway.create("t")
        for text in (parent.upper(), "1" * 4000, f"{parent}, {parent}", parent[:-1] + "0", ""):
            assert (await topic.post(b"1\n", NDJSON, {"traceparent": text})).status == 200
        assert len(gateway.node.spans) == 0


async def test_without_a_collector_there_is_no_span_and_with_a_ratio_there_are_all(tmp_path):
    async with in_process(tmp_path / "off") as gateway:
        await gateway.send("GET", "/v1", b"", SAMPLED)
        assert gateway.node.server.tracer is None
        assert await gateway.metric("penstock_spans_dropped_total") == 0
    async with in_process(tmp_path / "on", otlp_endpoint="http://127.0.0.1:1", trace_ratio=1.0) as gateway:
        await gateway.send("GET", "/v1")
        assert len(gateway.node.spans) == 1


async def test_a_collector_that_is_away_or_refuses_never_fails_a_request(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.tracing.exporter.EXPORT_S", 0.01)
    monkeypatch.setattr("gateway.tracing.exporter.PAUSE_S", 0.01)
    answers = [(503, {}), (429, {"Retry-After": "0"}), (502, {"Retry-After": "soon"}), (400, {})]
    async with stub_collector(answers) as collector, in_process(tmp_path, otlp_endpoint=collector.url) as gateway:
        topic = await gateway.create("t")
        assert (await topic.post(b"1\n", NDJSON, SAMPLED)).status == 200
        await until(lambda: not collector.answers)
        await until(lambda: gateway.node.spans.dropped)
        assert (await topic.post(b"1\n", NDJSON, SAMPLED)).status == 200
        await until(lambda: collector.spans)
        assert await gateway.metric("penstock_spans_dropped_total") == 1
    assert len(collector.spans) == 1
