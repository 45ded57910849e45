"""Version 2 of the dialect: producing, topics, and consumer instances."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from random import Random

import pytest

import penstock_codec
from engine.directory.topics import TopicRecord
from engine.shard.served_topics import Topic
from engine.topic_settings import TopicSettings
from gateway.groups.hosting.calls import HEARTBEAT
from gateway.groups.model.values import HeartbeatCall, Membership
from gateway.http.json_limits import DEFAULT_LIMITS
from gateway.http.problems import Problem
from gateway.produce.batching import Destination, to_batches
from gateway.produce.partitioner import Partitioner
from gateway.rest_proxy.records import decode_json
from tests.gateway.rest_proxy.served import BINARY, JSON, V2, proxy_node


async def test_what_is_produced_is_read_by_an_instance_in_both_formats(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {})
        answer = await client.produce("t", {"value": {"a": 1.0}}, {"key": "k", "value": "text"}, {"key": 7})
        assert answer.status == 200
        assert answer.media_type == V2
        assert answer.body == {
            "offsets": [{"partition": 0, "offset": n, "error_code": None, "error": None} for n in range(3)],
            "key_schema_id": None,
            "value_schema_id": None,
        }
        read = await client.instance("g", "json", format="json", **{"auto.offset.reset": "earliest"})
        assert (await client.post(read + "/subscription", {"topics": ["t"]})).status == 204
        answer = await client.get(read + "/records", accept=JSON)
        assert answer.media_type == JSON
        assert b'"value":{"a":1.0}' in answer.text, "the value is not as it was sent"
        assert answer.body[1:] == [
            {"topic": "t", "key": "k", "value": "text", "partition": 0, "offset": 1},
            {"topic": "t", "key": 7, "value": None, "partition": 0, "offset": 2},
        ]
        read = await client.instance("h", "binary", **{"auto.offset.reset": "earliest"})
        await client.post(read + "/assignments", {"partitions": [{"topic": "t", "partition": 0}]})
        answer = await client.get(read + "/records", accept=BINARY)
        assert answer.body[1]["key"] == base64.b64encode(b'"k"').decode(), "a text has lost its quotes"
        assert base64.b64decode(answer.body[1]["value"]) == b'"text"'


@pytest.mark.parametrize("more", ["", "x" * 5000], ids=["rows", "batches"])
async def test_each_record_of_several_partitions_gets_its_own_offset(tmp_path: Path, more: str) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 3, 1, {})
        records = [{"key": f"k{n}{more[:n]}", "value": n} for n in range(20)]
        records.append({"value": 20, "partition": 2, **({"key": more} if more else {})})
        rows = (await client.produce("t", *records)).body["offsets"]
        assert rows[20]["partition"] == 2
        assert len({(row["partition"], row["offset"]) for row in rows}) == 21
        read = await client.instance("g", "i", format="json")
        places = [{"topic": "t", "partition": n} for n in range(3)]
        await client.post(read + "/assignments", {"partitions": places})
        await client.post(read + "/positions/beginning", {"partitions": places})
        answer = await client.get(read + "/records")
        stored = {(one["partition"], one["offset"]): one["value"] for one in answer.body}
        assert [stored[row["partition"], row["offset"]] for row in rows] == list(range(21))


async def test_a_commit_is_behind_the_offset_that_it_names_and_an_empty_one_behind_all_that_was_read(
    tmp_path: Path,
) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {})
        await client.produce("t", *({"value": n} for n in range(5)))
        read = await client.instance("g", "i", format="json", **{"auto.offset.reset": "earliest"})
        await client.post(read + "/subscription", {"topics": ["t"]})
        assert await client.values(read) == [0, 1, 2, 3, 4]
        place = {"topic": "t", "partition": 0}
        assert (await client.get(read + "/offsets", body={"partitions": [place]})).body == {"offsets": []}
        assert (await client.post(read + "/offsets", {"offsets": [{**place, "offset": 1}]})).status == 204
        committed = await client.get(read + "/offsets", body={"partitions": [place]})
        assert committed.body == {"offsets": [{**place, "offset": 2, "metadata": ""}]}
        assert (await client.post(read + "/offsets")).status == 204
        committed = await client.get(read + "/offsets", body={"partitions": [place]})
        assert committed.body["offsets"][0]["offset"] == 5


async def test_a_deleted_instance_leaves_its_positions_to_the_next_one(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {})
        await client.produce("t", *({"value": n} for n in range(3)))
        settings = {"format": "json", "auto.offset.reset": "earliest"}
        read = await client.instance("g", "i", **settings)
        await client.post(read + "/subscription", {"topics": ["t"]})
        assert await client.values(read) == [0, 1, 2]
        assert await client.values(read) == [], "what was read is read again"
        assert (await client.ask("DELETE", read)).status == 204
        assert (await client.get(read + "/records")).body["error_code"] == 40403
        read = await client.instance("g", "i", **settings, **{"auto.commit.enable": "true"})
        await client.post(read + "/subscription", {"topics": ["t"]})
        assert await client.values(read) == [0, 1, 2], "what was not committed is not read again"
        assert await client.values(read) == []  # and commits what was read before
        await client.ask("DELETE", read)
        read = await client.instance("g", "i", **settings)
        await client.post(read + "/subscription", {"topics": ["t"]})
        assert await client.values(read) == []


async def test_two_instances_share_the_partitions_of_a_subscription(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 4, 1, {})
        reads = [await client.instance("g", name, format="json") for name in ("a", "b")]
        for read in reads:
            await client.post(read + "/subscription", {"topics": ["t"]})
        for _ in range(3):  # the first gives up two partitions with its next read
            for read in reads:
                await client.get(read + "/records?timeout=0")
        parts = [
            {one["partition"] for one in (await client.get(read + "/assignments")).body["partitions"]} for read in reads
        ]
        assert [len(part) for part in parts] == [2, 2]
        assert parts[0] | parts[1] == {0, 1, 2, 3}


async def test_a_read_waits_for_records_and_answers_with_the_first(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {})
        read = await client.instance("g", "i", format="json")
        await client.post(read + "/subscription", {"topics": ["t"]})
        assert await client.values(read) == []
        waiting = asyncio.create_task(client.values(read, timeout=20_000))
        while not node.long_polls.open:
            await asyncio.sleep(0.01)
        await client.produce("t", {"value": "now"})
        assert await asyncio.wait_for(waiting, 5) == ["now"]


async def test_an_instance_shares_its_group_with_a_member_of_the_contract(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 2, 1, {})
        read = await client.instance("g", "i", format="json")
        await client.post(read + "/subscription", {"topics": ["t"]})
        call = HeartbeatCall("g", "http", 0, ("t",))
        await node.server.groups.coordinators.call(HEARTBEAT, Membership, "g", call)
        assert (await client.get(read + "/records?timeout=0")).status == 200  # it gives up what it lost
        joined = await node.server.groups.coordinators.call(HEARTBEAT, Membership, "g", call)
        rows = (await client.get(read + "/assignments")).body["partitions"]
        assert {row["partition"] for row in rows} | {one.partition for one in joined.assignment} == {0, 1}
        assert (len(rows), len(joined.assignment)) == (1, 1)


REFUSED = [
    ("POST", "/topics/t", {"records": []}, JSON, 422, 422),
    ("POST", "/topics/t", {"foo": "bar"}, JSON, 422, 422),
    ("POST", "/topics/t", {"records": [{"valur": 1}]}, JSON, 422, 422),
    ("POST", "/topics/t", {"records": [{"value": "not base64"}]}, BINARY, 422, 422),
    ("POST", "/topics/t", b'{"records":[{', JSON, 400, 400),
    ("POST", "/topics/t", {"records": [{"value": 1}]}, "application/json", 415, 415),
    ("POST", "/topics/t", {"records": [{"value": 1}]}, "application/vnd.kafka.avro.v2+json", 415, 415),
    ("POST", "/topics/nope", {"records": [{"value": 1}]}, JSON, 404, 40401),
    ("POST", "/topics/t/partitions/9", {"records": [{"value": 1}]}, JSON, 404, 40402),
    ("POST", "/topics/t", {"records": [{"value": 1, "partition": 9}]}, JSON, 404, 40402),
    ("POST", "/topics/t", {"records": [{"value": 1, "partition": -1}]}, JSON, 422, 422),
    ("GET", "/topics/nope", None, V2, 404, 40401),
    ("GET", "/topics/t/partitions/9", None, V2, 404, 40402),
    ("GET", "/topics/t/partitions/x", None, V2, 404, 40402),
    ("GET", "/nope", None, V2, 404, 404),
    ("DELETE", "/topics/t", None, V2, 405, 405),
    ("POST", "/consumers/g", {"format": "xml"}, V2, 422, 42204),
    ("POST", "/consumers/g", {"format": "avro"}, V2, 422, 42204),
    ("POST", "/consumers/g", {"fetch.min.bytes": -10}, V2, 422, 42204),
    ("POST", "/consumers/g", {"auto.offset.reset": "bar"}, V2, 422, 42204),
    ("POST", "/consumers/g", {"auto.commit.enable": "maybe"}, V2, 422, 42204),
    ("POST", "/consumers/g", {"nope": 1}, V2, 422, 422),
    ("POST", "/consumers/g", {"name": "i"}, "text/plain", 415, 415),
    ("POST", "/consumers/g/instances/nope/subscription", {"topics": ["t"]}, V2, 404, 40403),
    ("GET", "/consumers/g/instances/nope/records", None, V2, 404, 40403),
    ("DELETE", "/consumers/nope/instances/nope", None, V2, 404, 40403),
    ("POST", "/consumers/g/instances/i/subscription", {"topics": ["t"], "topic_pattern": "t.*"}, V2, 409, 40903),
    ("POST", "/consumers/g/instances/i/subscription", {}, V2, 409, 40903),
    ("POST", "/consumers/g/instances/i/positions", {"offsets": [{"topic": "faulty", "partition": 0, "offset": 1}]},
     V2, 409, 40903),
    ("POST", "/consumers/g/instances/i/assignments", {"partitions": [{"topic": "no", "partition": 0}]}, V2, 404, 40401),
    ("GET", "/consumers/g/instances/i/records?timeout=x", None, V2, 400, 40002),
]  # fmt: skip


async def test_bad_input_gets_the_code_of_the_dialect(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {})
        await client.instance("g", "i", format="json")
        for method, path, body, media_type, status, code in REFUSED:
            answer = await client.ask(method, path, body, media_type)
            assert (answer.status, answer.body["error_code"]) == (status, code), (method, path, body, answer)
            assert set(answer.body) == {"error_code", "message"}
        assert (await client.post("/consumers/g", {"name": "i"})).body["error_code"] == 40902
        read = "/consumers/g/instances/i"
        answer = await client.get(read + "/records", accept=BINARY)
        assert (answer.status, answer.body["error_code"]) == (406, 40601)
        assert (await client.get("/brokers", accept="application/octet-stream")).status == 406
        for accept in ("*/*", "application/*", "*/json", "application/json", "application/vnd.kafka+json"):
            assert (await client.get("/brokers", accept=accept)).status == 200


@pytest.mark.parametrize("first", ["subscription", "assignments"])
async def test_a_subscription_and_an_assignment_exclude_each_other(tmp_path: Path, first: str) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {})
        read = await client.instance("g", "i", format="json")
        bodies = {"subscription": {"topics": ["t"]}, "assignments": {"partitions": [{"topic": "t", "partition": 0}]}}
        assert (await client.post(f"{read}/{first}", bodies.pop(first))).status == 204
        [(second, body)] = bodies.items()
        assert (await client.post(f"{read}/{second}", body)).body["error_code"] == 40903
        assert (await client.ask("DELETE", read + "/subscription")).status == 204
        assert (await client.get(read + "/subscription")).body == {"topics": []}
        assert (await client.post(f"{read}/{second}", body)).status == 204


async def test_a_value_that_is_no_json_is_a_text_and_other_bytes_name_where_they_are(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {})
        for value in (b'{"a":1}', b"hello", b"\xff", b"2"):
            await client.produce("t", {"value": base64.b64encode(value).decode()}, media_type=BINARY)
        read = await client.instance("g", "i", format="json", **{"auto.offset.reset": "earliest"})
        await client.post(read + "/subscription", {"topics": ["t"]})
        assert await client.values(read) == [{"a": 1}, "hello"]
        answer = await client.get(read + "/records")
        assert (answer.status, answer.body["error_code"]) == (422, 42207)
        assert "record 2 of t-0" in answer.body["message"]
        place = {"topic": "t", "partition": 0}
        assert (await client.post(read + "/positions", {"offsets": [{**place, "offset": 3}]})).status == 204
        assert await client.values(read) == [2]


@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[{"value":1},{"value":{"a":"b"}}]}',
        b'{"records":[{"key":"a","value":1},{"key":"\\u00e9\\n","value":null,"partition":3}]}',
        b'{"records":[{"key":{"a": 1},"value":[1, 2]}, {"value":"x","key":null}]}',
    ],
)
def test_the_compiled_codec_decodes_what_plain_python_decodes(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are compared as the batches that they make: the codec keeps places in the body."""
    topic = Topic(TopicRecord("t", "id", 4), TopicSettings())
    to = Destination(topic, Partitioner("t", 4, Random(1)), 1000, 0)
    compiled = to_batches(decode_json(body, DEFAULT_LIMITS), to, 1000)
    monkeypatch.setattr(penstock_codec, "native", None)
    plain = to_batches(decode_json(body, DEFAULT_LIMITS), to, 1000)
    assert [(part.partition, bytes(part.batch)) for part in compiled] == [
        (part.partition, bytes(part.batch)) for part in plain
    ]


@pytest.mark.parametrize("more", [b'"headers":{}', b'"timestamp":1', b'"value_base64":"YQ=="', b'"key_base64":"YQ=="'])
def test_members_of_the_contracts_records_are_unknown_here(more: bytes) -> None:
    with pytest.raises(Problem, match="unknown_field"):
        decode_json(b'{"records":[{"value":1,%b}]}' % more, DEFAULT_LIMITS)


async def test_requests_of_one_instance_at_once_get_each_record_once(tmp_path: Path) -> None:
    async with proxy_node(tmp_path) as (node, client):
        await node.topics.create("t", 1, 1, {})
        for first in range(0, 100, 10):
            await client.produce("t", *({"value": n} for n in range(first, first + 10)))
        read = await client.instance("g", "i", format="json", **{"auto.offset.reset": "earliest"})
        await client.post(read + "/subscription", {"topics": ["t"]})
        path = read + "/records?timeout=200&max_bytes=300"
        answers = await asyncio.gather(*(client.get(path) for _ in range(20)))
        assert sorted(record["value"] for answer in answers for record in answer.body) == list(range(100))


async def test_a_read_that_waits_is_no_slow_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with proxy_node(tmp_path, slow_request_ms=1) as (node, client):
        await node.topics.create("t", 1, 1, {})
        read = await client.instance("g", "i")
        assert (
            await client.post(read + "/assignments", {"partitions": [{"topic": "t", "partition": 0}]})
        ).status == 204
        assert (await client.get(read + "/records?timeout=30")).body == []
    slow = [line.__dict__["operation"] for line in caplog.records if line.getMessage() == "slow request"]
    assert "rest_create_instance" in slow, "its first group makes the topic of groups"
    assert "rest_read_records" not in slow
