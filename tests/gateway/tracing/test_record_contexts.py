"""The context of a sampled request in its records, and where it goes from there."""

from __future__ import annotations

import orjson
import pytest

from engine.format import batch as record_batch
from gateway.tracing.trace_context import TraceContext, record_context
from tests.gateway.tracing.stub_collector import attributes_of, stub_collector
from tests.gateway.tracing.test_traces import CLIENT_SPAN, SAMPLED, TRACE
from tests.scenarios.gateways import JSON, NDJSON, RECORD_BATCH, in_process
from tests.scenarios.push.receiver import SECRET, Receiver
from tests.waiting import until

PARENT = SAMPLED["traceparent"]
OWN = f"00-{'a' * 32}-{'b' * 16}-01"
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": 1}


def envelope(*records) -> bytes:
    return orjson.dumps({"records": records})


async def test_records_of_a_sampled_request_get_its_context_and_others_stay_as_they_are(tmp_path):
    async with in_process(tmp_path) as gateway:
        topic, plain = await gateway.create("t"), await gateway.create("plain", trace_headers="none")
        state = SAMPLED | {"tracestate": "a=1"}
        event = {"Content-Type": "application/cloudevents+json"}
        await topic.post(b"1\n2\n", NDJSON, state)
        await topic.post(envelope({"key": "k", "value": 1, "headers": {"x": "y"}}, {"value": 2}), JSON, SAMPLED)
        await topic.post(envelope({"value": 1, "headers": {"Traceparent": OWN}}), JSON, SAMPLED)
        await topic.post(b"\x00raw", "application/octet-stream", SAMPLED)
        await topic.post(orjson.dumps(EVENT), None, SAMPLED | event)
        await topic.post(orjson.dumps(EVENT | {"traceparent": OWN}), None, SAMPLED | event)
        await topic.post(b'{"id":"k"}\n', NDJSON, SAMPLED, key_pointer="/id")
        stored = len(await topic.records())
        await topic.post(b"1\n", NDJSON, {"traceparent": PARENT[:-1] + "0"})
        await topic.post(b"1\n", NDJSON, {"traceparent": "?" + PARENT})
        await topic.post(bytes(record_batch.encode([(1, None, b"1", [])])), RECORD_BATCH, SAMPLED)
        for_many = orjson.dumps({"records": [{"topic": "t", "value": 1}, {"topic": "plain", "value": 1}]})
        await gateway.send("POST", "/v1/records", for_many, SAMPLED | {"Content-Type": JSON})
        await plain.post(b"1\n", NDJSON, SAMPLED)
        records = await topic.records()
        assert not [record for record in await plain.records() if record["headers"]]
    shown = [record["headers"] for record in records]
    assert shown[:2] == [{"traceparent": PARENT, "tracestate": "a=1"}] * 2
    assert shown[2:4] == [{"x": "y", "traceparent": PARENT}, {"traceparent": PARENT}]
    assert records[2]["key"] == "k"
    assert shown[4] == {"Traceparent": OWN}
    assert shown[5] == {"content-type": "application/octet-stream", "traceparent": PARENT}
    assert shown[6]["traceparent"] == PARENT
    assert (shown[7]["ce_traceparent"], "traceparent" in shown[7]) == (OWN, False)
    assert (shown[8], records[8]["key"]) == ({"traceparent": PARENT}, "k")
    assert (stored, shown[9:]) == (9, [{}, {}, {}, {"traceparent": PARENT}])


async def test_a_context_never_makes_a_record_or_a_batch_too_large(tmp_path):
    async with in_process(tmp_path) as gateway:
        topic = await gateway.create("t", record_bytes_max=100, batch_bytes_max=1024)
        for body, key in ((b"1" * 100, None), (b"1" * 40, "k"), (b"1" * 40, "k" * 60)):
            query = {} if key is None else {"key": key}
            assert (await topic.post(body + b"\n", NDJSON, SAMPLED, **query)).status == 200
        assert (await topic.post(b"1\n" * 50, NDJSON, SAMPLED)).status == 200
        headers = [bool(record["headers"]) for record in await topic.records()]
    assert headers == [False, False, False] + [False] * 50


async def test_too_many_records_are_refused_before_each_becomes_an_object(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.produce.trace_headers.IncomingRow", None)
    async with in_process(tmp_path, records_per_request_max=2) as gateway:
        topic = await gateway.create("t")
        assert (await topic.post(b"1\n" * 3, NDJSON, SAMPLED)).status == 413


@pytest.mark.parametrize("is_event", [True, False])
def test_a_record_has_the_context_of_its_event_first(is_event):
    headers = [("traceparent", PARENT.encode()), ("tracestate", b"a=1")]
    if is_event:
        headers.append(("ce_traceparent", OWN.encode()))
    of_header, of_event = TraceContext(TRACE, CLIENT_SPAN, True, "a=1"), TraceContext("a" * 32, "b" * 16, True)
    assert record_context(headers) == (of_event if is_event else of_header)
    assert record_context([("traceparent", b"\xff")]) is None
    assert record_context([("traceparent", None)]) is None


@pytest.mark.parametrize("has_collector", [True, False])
async def test_a_push_carries_the_context_of_its_record_and_has_a_span(tmp_path, has_collector):
    receiver = Receiver([SECRET])
    await receiver.start()
    async with stub_collector() as collector:
        settings = {"otlp_endpoint": collector.url} if has_collector else {}
        async with in_process(tmp_path, push_targets="127.0.0.0/8", push_http=True, **settings) as gateway:
            topic = await gateway.create("t")
            await topic.post(b"1\n", NDJSON, SAMPLED)
            await topic.post(b"2\n", NDJSON)
            subscription = {"url": receiver.url, "topics": ["t"], "secrets": [SECRET], "start": "earliest"}
            await gateway.send("PUT", "/v1/subscriptions/s", orjson.dumps(subscription), {"Content-Type": JSON})
            await until(lambda: len(receiver.traceparents) == 2)
            await receiver.stop()
    sent, unsampled = receiver.traceparents
    assert unsampled is None
    if not has_collector:
        assert sent == PARENT
        return
    (span,) = collector.named("push")
    assert sent == f"00-{TRACE}-{span['spanId']}-01"
    assert (span["parentSpanId"], span["kind"]) == (CLIENT_SPAN, 3)
    attributes = attributes_of(span)
    assert attributes["messaging.destination.name"] == "t"
    assert attributes["http.response.status_code"] == "200"
