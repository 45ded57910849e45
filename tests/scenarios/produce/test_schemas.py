"""Topics with a schema: which records are taken, over every form of a body, and how a schema changes."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from engine.format import batch as record_batch
from tests.scenarios.gateways import JSON, RECORD_BATCH, Topic, in_process_only

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer", "minimum": 0}, "city": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}
TEXT = orjson.dumps(SCHEMA).decode()
GOOD, BAD = b'{"id":1,"city":"Z"}', b'{"id":-1}'


@pytest.fixture
async def rides(start_gateway) -> Topic:
    return await (await start_gateway()).create("rides", 2, value_schema=TEXT)


def batch(*values: bytes, codec: record_batch.Codec = record_batch.Codec.NONE) -> bytes:
    return bytes(record_batch.encode([(1000, b"k", value, []) for value in values], codec))


def envelope(*values: bytes, **more: Any) -> bytes:
    return orjson.dumps({"records": [{"value": orjson.loads(value), **more} for value in values]})


def event(value: bytes) -> bytes:
    head = b'{"specversion":"1.0","id":"1","source":"/a","type":"t","data":'
    return head + value + b"}"


@in_process_only
@pytest.mark.parametrize(
    ("content_type", "query", "make"),
    [
        ("application/x-ndjson", {}, b"\n".join),
        ("application/x-ndjson", {"key_pointer": "/id"}, b"\n".join),
        ("application/x-ndjson", {"ndjson": "records"}, lambda values: b"\n".join(b'{"value":%s}' % v for v in values)),
        (JSON, {}, lambda values: envelope(*values)),
        (JSON, {}, lambda values: envelope(*values, key="k", headers={"h": "v"})),
        (JSON, {"partition": 0}, lambda values: b'{"records":[%s]}' % b",".join(
            b'{"value_base64":"%s"}' % base64.b64encode(value) for value in values)),
        (RECORD_BATCH, {"partition": 0}, lambda values: batch(*values)),
        (RECORD_BATCH, {"partition": 0}, lambda values: batch(*values, codec=record_batch.Codec.ZSTD)),
        ("application/cloudevents-batch+json", {}, lambda values: b"[%s]" % b",".join(map(event, values))),
    ],
)  # fmt: skip
async def test_a_request_with_one_wrong_value_stores_nothing(rides, content_type, query, make):
    answer = await rides.post(make([GOOD, GOOD, BAD, GOOD]), content_type, **query)
    assert (answer.status, answer.json["code"]) == (400, "schema_mismatch")
    assert (answer.json["record"], answer.json["pointer"], answer.json["schema_version"]) == (2, "/id", 1)
    assert "record 2 does not follow version 1 of the schema: /id: " in answer.json["detail"]
    assert (await rides.post(make([GOOD] * 4), content_type, **query)).status == 200
    assert [*await rides.values(0), *await rides.values(1)] == [orjson.loads(GOOD)] * 4


@in_process_only
@pytest.mark.parametrize("value", [b"1", b"{}", b"null", b"{", b"text", b"\xff\xfe"])
async def test_a_raw_value_is_json_that_follows(rides, value):
    for content_type in ("application/octet-stream", "text/plain; charset=utf-8"):
        answer = await rides.post(value, content_type)
        assert (answer.status, answer.json["code"]) == (400, "schema_mismatch")
        assert (await rides.post(GOOD, content_type)).status == 200


@in_process_only
async def test_a_large_body_is_checked_in_pieces(rides):
    lines = [GOOD] * 40_000
    assert (await rides.post(b"\n".join(lines), "application/x-ndjson")).status == 200
    lines[39_999] = BAD
    answer = await rides.post(b"\n".join(lines), "application/x-ndjson")
    assert (answer.json["code"], answer.json["record"]) == ("schema_mismatch", 39_999)
    assert (await rides.post(batch(*lines), RECORD_BATCH, partition=0)).json["record"] == 39_999


@in_process_only
async def test_of_a_request_for_many_topics_a_partition_fails_alone(rides):
    await rides.gateway.create("free", 1)
    records = [
        {"topic": "free", "value": "any"},
        {"topic": "rides", "partition": 0, "value": {"id": 1}},
        {"topic": "rides", "partition": 1, "value": {"id": 1}},
        {"topic": "rides", "partition": 1, "value": {"id": "x"}},
    ]
    answer = await rides.gateway.send("POST", "/v1/records", orjson.dumps({"records": records}), {"Content-Type": JSON})
    results = {(row["topic"], row["partition"]): row for row in answer.json["results"]}
    assert results["free", 0]["base_offset"] == results["rides", 0]["base_offset"] == 0
    problem = results["rides", 1]["problem"]
    assert (problem["code"], problem["record"], problem["pointer"]) == ("schema_mismatch", 3, "/id")


@in_process_only
async def test_keys_and_sequences_of_refused_requests_can_be_used_again(rides):
    key = {"Idempotency-Key": "a"}
    assert (await rides.post(BAD, "application/x-ndjson", key)).json["code"] == "schema_mismatch"
    assert (await rides.post(GOOD, "application/x-ndjson", key)).status == 200
    producer = (await rides.gateway.send("POST", "/v1/producers")).json["producer_id"]

    def sequence(number: int) -> dict[str, str]:
        head = {"Penstock-Producer-Id": str(producer), "Penstock-Producer-Epoch": "0"}
        return {**head, "Penstock-Producer-Seq": str(number)}

    ndjson = "application/x-ndjson"
    assert (await rides.post(BAD, ndjson, sequence(0), partition=0)).json["code"] == "schema_mismatch"
    assert (await rides.post(GOOD, ndjson, sequence(0), partition=0)).status == 200


@in_process_only
async def test_tombstones_are_of_compacted_topics(start_gateway):
    gateway = await start_gateway()
    table = await gateway.create("table", value_schema=TEXT, cleanup_policy="compact")
    assert (await table.post_records({"key": "k", "value": None})).status == 200
    log = await gateway.create("log", value_schema=TEXT)
    assert (await log.post_records({"key": "k", "value": None})).json["code"] == "schema_mismatch"


async def test_a_schema_changes_compatibly_or_by_its_next_version(rides):
    async def alter(**config: object) -> Any:
        body = orjson.dumps({"config": config})
        return await rides.gateway.send("PATCH", rides.path, body, {"Content-Type": JSON})

    wider = {**SCHEMA, "properties": {**SCHEMA["properties"], "fare": {"type": "number"}}}
    answer = await alter(value_schema=orjson.dumps(wider).decode())
    assert (answer.status, answer.json["config"]["value_schema_version"]) == (200, 2)
    assert (await rides.post(b'{"id":1,"fare":2.5}', "application/x-ndjson")).status == 200
    answer = await alter(value_schema=TEXT)
    assert (answer.status, answer.json["code"]) == (400, "invalid_config")
    assert "/fare" in answer.json["detail"]
    assert (await alter(value_schema=TEXT, value_schema_version=7)).status == 400
    assert (await alter(value_schema=TEXT, value_schema_version=3)).status == 200
    answer = await rides.post(b'{"id":1,"fare":2.5}', "application/x-ndjson")
    assert (answer.json["code"], answer.json["schema_version"]) == ("schema_mismatch", 3)
    assert (await alter(value_schema='{"$ref":"http://127.0.0.1:1/x"}', value_schema_version=4)).status == 400
    assert (await alter(value_schema="x" * 40_000)).status == 400
    assert (await alter(value_schema="")).status == 200
    assert (await rides.post(b"any", "text/plain")).status == 200


@in_process_only
async def test_a_topic_is_not_made_with_a_schema_that_cannot_be_used(start_gateway):
    gateway = await start_gateway()
    for text in ("{", '{"$ref":"#"}', '{"pattern":"(?=a)"}'):
        body = orjson.dumps({"config": {"value_schema": text}})
        answer = await gateway.send("PUT", "/v1/topics/t", body, {"Content-Type": JSON})
        assert (answer.status, answer.json["code"]) == (400, "invalid_config")
