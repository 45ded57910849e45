"""Version 3 of the dialect: administration, records with receipts, streams, groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.http.problems import Problem
from gateway.rest_proxy.v3_records import Splitter
from node.node import Node
from tests.gateway.rest_proxy.served import Client, proxy_node

JSON = "application/json"


def cluster_of(node: Node) -> str:
    return f"/v3/clusters/{node.server.admin.cluster_id}"


def receipts(text: bytes) -> list[Any]:
    return [orjson.loads(one) for one in text.split(b"\r\n") if one]


async def test_a_topic_is_made_altered_and_deleted(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        cluster = cluster_of(node)
        [found] = (await client.get("/v3/clusters")).body["data"]
        assert found == (await client.get(cluster)).body
        body = {"topic_name": "t", "partitions_count": 2, "configs": [{"name": "retention.ms", "value": "60000"}]}
        assert (await client.post(cluster + "/topics", {**body, "validate_only": True}, JSON)).status == 201
        assert node.topics.get("t") is None, "validate_only has made a topic"
        made = await client.post(cluster + "/topics", body, JSON)
        assert (made.status, made.body["partitions_count"], made.body["kind"]) == (201, 2, "KafkaTopic")
        assert made.body["metadata"]["resource_name"] == f"crn:///kafka={node.server.admin.cluster_id}/topic=t"
        again = await client.post(cluster + "/topics", body, JSON)
        assert (again.status, again.body) == (400, {"error_code": 40002, "message": "Topic 't' already exists."})
        topic = cluster + "/topics/t"
        config = (await client.get(topic + "/configs/retention.ms")).body
        assert (config["value"], config["source"]) == ("60000", "DYNAMIC_TOPIC_CONFIG")
        assert (await client.ask("DELETE", topic + "/configs/retention.ms")).status == 204
        assert (await client.get(topic + "/configs/retention.ms")).body["is_default"]
        altered = {"data": [{"name": "cleanup.policy", "value": "compact"}]}
        assert (await client.post(topic + "/configs:alter", altered, JSON)).status == 204
        configs = {one["name"]: one["value"] for one in (await client.get(topic + "/configs")).body["data"]}
        assert configs["cleanup.policy"] == "compact"
        assert (await client.ask("PATCH", topic, {"partitions_count": 3}, JSON)).body["partitions_count"] == 3
        parts = (await client.get(topic + "/partitions")).body["data"]
        assert [one["partition_id"] for one in parts] == [0, 1, 2]
        [replica] = (await client.get(topic + "/partitions/2/replicas")).body["data"]
        assert (replica["is_leader"], replica["is_in_sync"]) == (True, True)
        assert (await client.get(cluster + "/brokers")).body["data"][0]["broker_id"] == replica["broker_id"]
        assert (await client.ask("DELETE", topic)).status == 204
        assert (await client.get(topic)).body["error_code"] == 40403
        assert (await client.get("/v3/clusters/other/topics")).status == 404


async def test_records_get_receipts_with_type_size_and_time(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 2, 1, {})
        records = cluster_of(node) + "/topics/t/records"
        record = {
            "partition_id": 1,
            "headers": [{"name": "h", "value": "Zm9v"}],
            "key": {"type": "BINARY", "data": "a2V5"},
            "value": {"type": "JSON", "data": {"foo": "bar"}},
            "timestamp": "2021-02-05T19:14:42Z",
        }
        answer = await client.post(records, record, JSON)
        assert answer.status == 200
        assert answer.body == {
            "error_code": 200,
            "cluster_id": node.server.admin.cluster_id,
            "topic_name": "t",
            "partition_id": 1,
            "offset": 0,
            "timestamp": "2021-02-05T19:14:42.000Z",
            "key": {"type": "BINARY", "size": 3},
            "value": {"type": "JSON", "size": 13},
        }
        several = b'{"partition_id":1,"value":{"type":"STRING","data":"a"}}{"partition_id":1}\n{"partition_id":1}'
        assert [one["offset"] for one in receipts((await client.post(records, several, JSON)).text)] == [1, 2, 3]


REFUSED = [
    (b"", 422, 42206),
    (b"[]", 400, 400),
    (b'{"partition_id":0', 400, 400),
    (b'{"nope":1}', 422, 422),
    (b'{"partition_id":-1}', 404, 40402),
    (b'{"partition_id":9}', 404, 40402),
    (b'{"value":{"type":"BINARY","data":"!"}}', 400, 40002),
    (b'{"value":{"type":"AVRO","data":1}}', 400, 40002),
    (b'{"value":{"type":"XML","data":1}}', 400, 40002),
    (b'{}{"timestamp":"yesterday"}', 422, 422),
]


async def test_a_bad_record_of_a_whole_body_stores_nothing(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {})
        records = cluster_of(node) + "/topics/t/records"
        for body, status, code in REFUSED:
            answer = await client.post(records, body, JSON)
            assert (answer.status, answer.body["error_code"]) == (status, code), (body, answer)
        assert (await client.get("/topics/t/partitions/0/offsets")).body["end_offset"] == 0
        missing = await client.post(cluster_of(node) + "/topics/no/records", {}, JSON)
        assert (missing.status, missing.body["error_code"]) == (404, 40403)


async def test_a_body_of_too_many_records_is_refused(tmp_path: Path) -> None:
    async with proxy_node(tmp_path, records_per_request_max=10) as (node, client):
        await node.topics.create("t", 1, 1, {})
        records = cluster_of(node) + "/topics/t/records"
        answer = await client.post(records, b"{}" * 11 + b"nonsense", JSON)  # what is behind them is not looked at
        assert (answer.status, answer.body["message"]) == (413, "the request has 11 records, 10 are allowed")
        assert len(receipts((await client.post(records, b"{}" * 10, JSON)).text)) == 10


async def test_a_batch_names_what_succeeded_and_what_failed(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {})
        batch = cluster_of(node) + "/topics/t/records:batch"
        entries = [{"id": "1", "value": {"type": "JSON", "data": 1}}, {"id": "2", "partition_id": 7}]
        answer = await client.post(batch, {"entries": entries}, JSON)
        assert answer.status == 207
        assert [one["id"] for one in answer.body["successes"]] == ["1"]
        assert [(one["id"], one["error_code"]) for one in answer.body["failures"]] == [("2", 40402)]
        for bad in ([], [{"id": "1"}, {"id": "1"}], [{"value": None}], [{"id": str(n)} for n in range(51)]):
            answer = await client.post(batch, {"entries": bad}, JSON)
            assert (answer.status, answer.body["error_code"]) == (422, 42208)
        for kind in (b"JSON", b"STRING"):  # as in every other body: what is not text is neither stored nor a failure
            body = b'{"entries":[{"id":"1","value":{"type":"%b","data":"\xff"}}]}' % kind
            answer = await client.post(batch, body, JSON)
            assert (answer.status, answer.body["error_code"]) == (400, 400)
        assert (await client.get("/topics/t/partitions/0/offsets")).body["end_offset"] == 1


async def test_a_stream_gets_a_receipt_for_each_record_while_it_goes_on(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {})
        path = cluster_of(node) + "/topics/t/records"
        host, port = client.address
        reader, writer = await asyncio.open_connection(host, port)
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())

        async def send(data: bytes) -> dict[str, Any]:
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            while not (line := await asyncio.wait_for(reader.readline(), 5)).startswith(b"{"):
                assert line, "the answer has ended"
            found: dict[str, Any] = orjson.loads(line)
            return found

        assert (await send(b'{"value":{"type":"JSON","data":1}}'))["offset"] == 0
        assert (await send(b'{"value":{"type":"BINARY","data":"!"}}'))["error_code"] == 40002
        assert (await send(b'{"value":{"type":"JSON","data":2}}'))["offset"] == 1
        await node.topics.delete("t")
        assert (await send(b"{}"))["error_code"] == 40403
        await node.topics.create("t", 1, 1, {})
        assert (await send(b"{}"))["offset"] == 0
        assert (await send(b"nonsense"))["error_code"] == 400
        writer.close()


async def test_a_stream_divides_objects_wherever_its_pieces_end() -> None:
    async def pieces(size: int) -> AsyncIterator[bytes]:
        for at in range(0, len(text), size):
            yield text[at : at + size]

    objects = [b'{"a":"}{\\""}', b"{}", b'{"b":[{"c":"\\\\"}]}', b'{"d":"\\\\\\"}"}']
    text = b" \n".join(objects) + b" "
    for size in range(1, len(text)):
        splitter = Splitter()
        assert [one async for piece in pieces(size) for one in splitter.feed(piece)] == objects
        assert not splitter.pending_bytes
    with pytest.raises(Problem, match="malformed_json"):
        list(Splitter().feed(b"{} 1"))


def test_the_pieces_of_a_long_object_are_looked_at_once() -> None:
    splitter = Splitter()
    assert not list(splitter.feed(b'{"v":"' + b"a" * 100_000))
    for piece in (b"\\", b'"', b"a"):
        before = splitter.pending_bytes
        assert not list(splitter.feed(piece))
        assert splitter._scanned >= before - 1  # a half of an escape waits for the other
    assert [len(one) for one in splitter.feed(b'"}{"w"')] == [100_011]
    assert splitter.pending_bytes == 4


async def test_lag_of_a_group_and_its_members(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 2, 1, {})
        await client.produce("t", *({"value": n, "partition": 1} for n in range(5)))
        await _read_and_commit(client, 1, 1)
        group = cluster_of(node) + "/consumer-groups/g"
        assert [
            one["consumer_group_id"] for one in (await client.get(cluster_of(node) + "/consumer-groups")).body["data"]
        ] == ["g"]
        assert (await client.get(group)).body["state"] == "STABLE"
        [consumer] = (await client.get(group + "/consumers")).body["data"]
        assert consumer["consumer_id"] == "i"
        rows = (await client.get(group + "/consumers/i/assignments")).body["data"]
        assert [row["partition_id"] for row in rows] == [0, 1]
        [lag] = (await client.get(group + "/lags")).body["data"]
        assert (lag["partition_id"], lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (1, 2, 5, 3)
        summary = (await client.get(group + "/lag-summary")).body
        assert (summary["max_lag"], summary["total_lag"], summary["max_lag_consumer_id"]) == (3, 3, "i")
        assert (await client.get(group + "/lags/t/partitions/1")).body == lag
        assert (await client.get(cluster_of(node) + "/consumer-groups/no")).body["error_code"] == 40405


async def _read_and_commit(client: Client, partition: int, offset: int) -> None:
    read = await client.instance("g", "i", format="json")
    await client.post(read + "/subscription", {"topics": ["t"]})
    await client.get(read + "/records?timeout=0")
    row = {"topic": "t", "partition": partition, "offset": offset}
    assert (await client.post(read + "/offsets", {"offsets": [row]})).status == 204


async def test_a_client_that_leaves_its_stream_holds_nothing(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {})
        _, writer = await asyncio.open_connection(*client.address)
        path = cluster_of(node) + "/topics/t/records"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
        record = b'{"value":{"type":"JSON","data":1}}'
        writer.write(head.encode() + b"%x\r\n%b\r\n" % (len(record), record) * 200)
        while not (await client.get("/topics/t/partitions/0/offsets")).body["end_offset"]:
            await asyncio.sleep(0.01)
        writer.transport.abort()
        while node.metrics.requests_in_flight.value:
            await asyncio.sleep(0.01)
        assert not node.bodies.held_bytes


async def test_a_value_that_does_not_follow_the_schema_is_refused_everywhere(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {"value_schema": '{"required":["id"]}'})
        good, bad = {"value": {"type": "JSON", "data": {"id": 1}}}, {"value": {"type": "JSON", "data": {"no": 1}}}
        answer = await client.post(cluster_of(node) + "/topics/t/records", bad, media_type=JSON)
        assert (answer.status, "record 0 does not follow" in answer.body["message"]) == (422, True)
        batch = {"entries": [{"id": "1", **good}, {"id": "2", **bad}]}
        answer = await client.post(cluster_of(node) + "/topics/t/records:batch", batch, media_type=JSON)
        assert [row["id"] for row in answer.body["successes"]] == ["1"]
        assert [row["id"] for row in answer.body["failures"]] == ["2"]
        answer = await client.produce("t", {"value": {"id": 1}}, {"value": {"no": 1}})
        assert (answer.status, "record 1 does not follow" in answer.body["message"]) == (422, True)
