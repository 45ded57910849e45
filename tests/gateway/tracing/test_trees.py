"""One request through several processes is one tree."""

from __future__ import annotations

import pytest

from tests.e2e.node_process import running_process
from tests.gateway.several_nodes import several_nodes
from tests.gateway.tracing.stub_collector import attributes_of, events_of, stub_collector
from tests.gateway.tracing.test_traces import PRODUCE, SAMPLED
from tests.scenarios.gateways import NDJSON, over_http2
from tests.waiting import until


@pytest.mark.long
async def test_the_leader_in_another_shard_has_a_span_below_that_of_the_request(tmp_path):
    async with stub_collector() as collector:
        settings = {"shards": 2, "otlp_endpoint": collector.url}
        with running_process(tmp_path, **settings) as process:
            async with over_http2(process.port) as gateway:
                topic = await gateway.create("orders", partitions=4)
                for partition in range(4):
                    answer = await topic.post(b"1\n", NDJSON, SAMPLED, to=partition)
                    assert answer.status == 200
                    assert (await topic.fetch(0, partition)).status == 200
                large = b"".join(b"%d\n" % number for number in range(3000))
                for partition in range(4):
                    assert (await topic.post(large, NDJSON, SAMPLED, to=partition)).status == 200
            process.stop()
        await until(lambda: len(collector.spans) >= 12)
    requests = {span["spanId"]: span for span in collector.spans if span["kind"] == 2}
    appends = collector.named("append")
    assert len(requests) == 8
    assert len(appends) == 4, "half of the partitions are those of the other shard"
    for append in appends:
        request = requests[append["parentSpanId"]]
        assert request["name"] == PRODUCE.replace("/records", "/partitions/{partition}/records")
        assert attributes_of(append)["penstock.shard"] != attributes_of(request)["penstock.shard"]
        assert (
            attributes_of(append)["messaging.destination.partition.id"]
            == attributes_of(request)["messaging.destination.partition.id"]
        )
        assert events_of(append) == ["queue", "append", "flush", "ack"]
        assert events_of(request) == ["enter", "body", "decode", "ack"]
        assert append["traceId"] == request["traceId"]


async def test_a_request_that_is_forwarded_is_one_tree(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.tracing.exporter.EXPORT_S", 0.01)
    async with stub_collector() as collector, several_nodes(tmp_path, otlp_endpoint=collector.url) as cluster:
        topics = await cluster.create("orders", partitions=2, leader=2)
        cluster.world.lead(0, 1)
        for partition in range(2):
            assert (await topics[1].post(b"1\n", NDJSON, SAMPLED, to=partition)).status == 200
        headers = SAMPLED | {"Accept": "application/json"}
        for partition in range(2):
            path = f"/v1/topics/orders/partitions/{partition}/records"
            assert (await topics[1].gateway.send("GET", path, b"", headers, offset=0)).status == 200
        assert (await topics[1].post(b"1\n", NDJSON, {}, to=1)).status == 200
        await until(lambda: len(collector.spans) == 6)
    produce, fetch = ("POST", "GET")
    path = "/v1/topics/{topic}/partitions/{partition}/records"
    assert collector.tree() == [
        f"{produce} {path}",
        f"{produce} {path}",
        "  append",
        f"{fetch} {path}",
        f"{fetch} {path}",
        "  fetch",
    ]
