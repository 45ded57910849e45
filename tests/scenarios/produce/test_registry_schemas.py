"""Topics whose values name a schema of a registry: which records are taken, and what a silent registry does."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine.format import batch as record_batch
from gateway.registry import registered_schemas
from tests.gateway.registry.registries import AVRO, StubRegistry, avro_ride, framed, protobuf_file, stub_registry
from tests.scenarios.event_source import event_source
from tests.scenarios.gateways import JSON, NDJSON, RECORD_BATCH, in_process_only
from tests.scenarios.groups.group_client import GroupClient

pytest.importorskip("fastavro")


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    with stub_registry() as stub:
        yield stub


def batch(*values: bytes | None, codec: record_batch.Codec = record_batch.Codec.NONE) -> bytes:
    return bytes(record_batch.encode([(1000, b"k", value, []) for value in values], codec))


def envelope(*values: bytes, **more: object) -> bytes:
    return json.dumps(
        {"records": [{"value_base64": base64.b64encode(one).decode(), **more} for one in values]}
    ).encode()


@in_process_only
async def test_a_value_that_does_not_follow_its_schema_is_refused_with_all_of_its_request(start_gateway, registry):
    good = registry.add("rides-value", json.dumps(AVRO))
    other = registry.add("trips-value", json.dumps(AVRO))
    text = registry.add("rides-value", '{"type":"object"}', "JSON")
    gateway = await start_gateway(schema_registry_url=registry.url)
    rides = await gateway.create("rides", 1, value_schema_type="avro")
    cases = {
        b"x": "record 1 must begin with a zero byte",
        b"": "record 1 must begin with a zero byte",
        avro_ride(99): "names schema 99: the registry has no schema 99",
        avro_ride(other): f"names schema {other}: the subject rides-value does not have it",
        framed(text, b"{}"): f"names schema {text}: it is of the type JSON, and the topic takes avro",
        avro_ride(good)[:-1]: f"does not follow schema {good}: EOFError",
        avro_ride(good) + b"x": f"does not follow schema {good}: 1 bytes follow the record",
    }
    for value, why in cases.items():
        for body, kind in (
            (envelope(avro_ride(good), value), JSON),
            (batch(avro_ride(good), value), RECORD_BATCH),
            (batch(avro_ride(good), value, codec=record_batch.Codec.ZSTD), RECORD_BATCH),
        ):
            answer = await rides.post(body, kind, partition=0)
            assert (answer.status, answer.json["code"], answer.json["record"]) == (400, "schema_mismatch", 1), why
            assert why in answer.json["detail"]
    assert (await rides.post(avro_ride(good), "application/octet-stream")).status == 200
    assert (await rides.post(envelope(avro_ride(good)), JSON)).status == 200
    assert (await rides.post(batch(avro_ride(good)), RECORD_BATCH, partition=0)).status == 200
    assert len(await rides.values()) == 3
    assert sum(path == f"/schemas/ids/{good}" for path in registry.requests) == 1


@in_process_only
async def test_of_a_request_for_many_topics_a_partition_fails_alone(start_gateway, registry):
    good = registry.add("shared", json.dumps(AVRO))
    gateway = await start_gateway(schema_registry_url=registry.url)
    await gateway.create("free", 1)
    await gateway.create("rides", 2, value_schema_type="avro", value_schema_subject="shared")
    right = base64.b64encode(avro_ride(good)).decode()
    records = [
        {"topic": "free", "value": "any"},
        {"topic": "rides", "partition": 0, "value_base64": right},
        {"topic": "rides", "partition": 1, "value": "text"},
    ]
    answer = await gateway.send(
        "POST", "/v1/records", json.dumps({"records": records}).encode(), {"Content-Type": JSON}
    )
    results = {(row["topic"], row["partition"]): row for row in answer.json["results"]}
    assert results["free", 0]["base_offset"] == results["rides", 0]["base_offset"] == 0
    assert (results["rides", 1]["problem"]["code"], results["rides", 1]["problem"]["record"]) == ("schema_mismatch", 2)


@in_process_only
async def test_protobuf_and_json_schema_by_their_ids(start_gateway, registry):
    pytest.importorskip("google.protobuf")
    orders = registry.add("orders-value", protobuf_file(), "PROTOBUF")
    gateway = await start_gateway(schema_registry_url=registry.url)
    topic = await gateway.create("orders", 1, value_schema_type="protobuf")
    good = [b"\x00\x08\x05", b"\x02\x00\x08\x05", b"\x04\x00\x00\x0a\x01a", b"\x02\x02\x0a\x00"]  # the last: Other
    assert (await topic.post(envelope(*(framed(orders, data) for data in good)), JSON)).status == 200
    for data in (b"", b"\x00\x08", b"\x02\x08\x08\x05", b"\x04\x00\x02", b"\xff"):
        answer = await topic.post(framed(orders, data), "application/octet-stream")
        assert (answer.status, answer.json["code"], answer.json["schema_id"]) == (400, "schema_mismatch", orders)
    rule = registry.add("any", '{"type":"object","required":["id"]}', "JSON")
    topic = await gateway.create("things", 1, value_schema_type="json", value_schema_subject="*")
    assert (await topic.post(framed(rule, b'{"id":1}'), "application/octet-stream")).status == 200
    for data in (b"{}", b"{", b"1"):
        answer = await topic.post(framed(rule, data), "application/octet-stream")
        assert (answer.json["code"], answer.json["record"]) == ("schema_mismatch", 0)


@in_process_only
async def test_a_silent_registry_holds_up_only_what_names_an_unknown_schema(start_gateway, registry, monkeypatch):
    known, later = registry.add("rides-value", json.dumps(AVRO)), registry.add("rides-value", json.dumps(AVRO))
    gateway = await start_gateway(schema_registry_url=registry.url)
    rides = await gateway.create("rides", 1, value_schema_type="avro")
    assert (await rides.post(avro_ride(known), "application/octet-stream")).status == 200
    registry.is_silent = True
    for _ in range(3):
        answer = await rides.post(avro_ride(later), "application/octet-stream")
        assert (answer.status, answer.json["code"], answer.json["no_side_effects"]) == (
            503,
            "registry_unavailable",
            True,
        )
        assert answer.headers["Retry-After"]
    assert sum(path == f"/schemas/ids/{later}" for path in registry.requests) == 1  # it is left alone for a while
    assert (await rides.post(avro_ride(known), "application/octet-stream")).status == 200
    registry.is_silent = False
    monkeypatch.setattr(registered_schemas, "SILENT_S", 0)
    gateway.node.schemas._silent_until = 0
    assert (await rides.post(avro_ride(later), "application/octet-stream")).status == 200


@in_process_only
async def test_a_node_without_a_registry_takes_none_of_its_values(start_gateway):
    gateway = await start_gateway()
    rides = await gateway.create("rides", 1, value_schema_type="avro")
    answer = await rides.post(avro_ride(1), "application/octet-stream")
    assert (answer.status, answer.json["code"]) == (503, "registry_unavailable")
    body = json.dumps({"config": {"value_schema": "{}"}}).encode()
    answer = await gateway.send("PATCH", rides.path, body, {"Content-Type": JSON})
    assert (answer.status, answer.json["code"]) == (400, "invalid_config")


@in_process_only
async def test_tombstones_of_compacted_topics_name_no_schema(start_gateway, registry):
    gateway = await start_gateway(schema_registry_url=registry.url)
    for policy, status in (("compact", 200), ("delete", 400)):
        topic = await gateway.create(policy, 1, value_schema_type="avro", cleanup_policy=policy)
        assert (await topic.post(batch(None), RECORD_BATCH, partition=0)).status == status


@in_process_only
async def test_values_are_shown_as_json_by_their_schemas(start_gateway, registry):
    pytest.importorskip("google.protobuf")
    ride = registry.add("a", json.dumps(AVRO))
    order = registry.add("b", protobuf_file(), "PROTOBUF")
    word = registry.add("c", '"string"')
    gateway = await start_gateway(schema_registry_url=registry.url)
    topic = await gateway.create("mixed", 1)
    late = framed(77, b"x")
    values = [avro_ride(ride, 5), framed(order, b"\x00\x08\x07"), framed(word, b"\x02a"), avro_ride(ride)[:-1], late]
    await topic.post(batch(*values, b'{"a":1.0}', b"\xff", None), RECORD_BATCH, partition=0)
    for accept in (JSON, NDJSON):
        answer = await topic.fetch(value="schema", accept=accept)
        assert answer.headers["Cache-Control"] == "no-store"
        records = answer.json["records"] if accept == JSON else answer.lines
        shown = [(one.get("schema_id"), one.get("value", one.get("value_base64"))) for one in records]
        assert shown == [
            (ride, {"id": 5, "city": "Z"}),
            (order, {"id": 7}),
            (word, "a"),
            (ride, base64.b64encode(values[3]).decode()),
            (77, base64.b64encode(late).decode()),
            (None, {"a": 1.0}),
            (None, "/w=="),
            (None, None),
        ]
        assert b'{"a":1.0}' in answer.body
    answer = await topic.fetch(value="schema", accept=RECORD_BATCH)
    assert (answer.status, answer.json["parameter"]) == (400, "value")
    bare = await (await start_gateway()).create("bare", 1)
    await bare.post(values[0], "application/octet-stream")
    [record] = await bare.records(value="schema")
    assert (record["schema_id"], record["value_base64"]) == (ride, base64.b64encode(values[0]).decode())


@in_process_only
async def test_each_read_shows_values_by_their_schemas(start_gateway, registry):
    ride, late = registry.add("a", json.dumps(AVRO)), framed(77, b"x")
    gateway = await start_gateway(schema_registry_url=registry.url)
    rides = await gateway.create("rides", 1)
    await rides.post(batch(avro_ride(ride, 5), late, b'{"a":1}'), RECORD_BATCH, partition=0)
    expected = [(ride, {"id": 5, "city": "Z"}), (77, base64.b64encode(late).decode()), (None, {"a": 1})]

    def shown(records: list[dict[str, Any]]) -> list[tuple[int | None, object]]:
        return [(one.get("schema_id"), one.get("value", one.get("value_base64"))) for one in records]

    entry = {"topic": "rides", "partition": 0, "offset": 0}
    body = json.dumps({"partitions": [entry], "value": "schema"}).encode()
    answer = await gateway.send("POST", "/v1/fetch", body, {"Content-Type": JSON})
    assert shown(answer.json["partitions"][0]["records"]) == expected
    polled = await GroupClient(gateway, "g").polled("a", topics=["rides"], value="schema")
    assert shown(polled["partitions"][0]["records"]) == expected
    queue = GroupClient(gateway, "q")
    assert (await queue.send("PUT", body={"config": {"kind": "share", "start": "earliest"}})).status == 201
    acquired = await queue.send("POST", "/acquire", {"topics": ["rides"], "value": "schema"})
    assert shown(acquired.json["records"]) == expected
    for path in ("/v1/topics/rides/records?from=earliest&", "/v1/groups/h/members/a/events?topics=rides&"):
        async with event_source(gateway.port, f"{path}value=schema") as stream:
            assert shown([one.json for one in await stream.take(3)]) == expected
