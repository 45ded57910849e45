"""The formats of REST Proxy's dialect that need a schema registry, with a stub of one."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import current_thread, main_thread

import pytest

from engine.encodings.avro_json import AvroWriter
from engine.encodings.undecodable import Undecodable
from node.node import Node
from tests.gateway.registry.registries import AVRO, StubRegistry, avro_ride, framed, protobuf_file, stub_registry
from tests.gateway.rest_proxy.served import Client, proxy_node

pytest.importorskip("fastavro")
RIDE = {"id": 7, "city": "Lima"}
V2 = "application/vnd.kafka.{}.v2+json"


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    with stub_registry() as stub:
        yield stub


@pytest.fixture
async def proxy(tmp_path: Path, registry: StubRegistry) -> AsyncIterator[tuple[Node, Client]]:
    async with proxy_node(tmp_path, schema_registry_url=registry.url, auto_create_topics=True) as found:
        yield found


async def stored(proxy: tuple[Node, Client], topic: str) -> list[bytes | None]:
    """Returns the values of a topic as they are stored."""
    instance = await proxy[1].instance(f"binary-{topic}", "a", format="binary", **{"auto.offset.reset": "earliest"})
    await proxy[1].post(f"{instance}/subscription", {"topics": [topic]})
    values = await proxy[1].values(instance, 2000)
    return [None if value is None else base64.b64decode(value) for value in values]


async def test_v2_encodes_by_a_schema_that_a_request_has_and_registers_it_once(proxy, registry):
    body = {"value_schema": json.dumps(AVRO), "records": [{"value": RIDE}, {"value": None}, {"value": RIDE}]}
    for _ in range(2):
        answer = await proxy[1].post("/topics/rides", body, V2.format("avro"))
        assert (answer.status, answer.body["value_schema_id"], answer.body["key_schema_id"]) == (200, 1, None)
    assert await stored(proxy, "rides") == [avro_ride(1, 7, "Lima"), None, avro_ride(1, 7, "Lima")] * 2
    assert [path for path in registry.requests if "subjects" in path] == ["/subjects/rides-value/versions"]
    with_key = {"key_schema": '"string"', "value_schema_id": 1, "records": [{"key": "a", "value": RIDE}]}
    answer = await proxy[1].post("/topics/rides", with_key, V2.format("avro"))
    assert (answer.body["key_schema_id"], answer.body["value_schema_id"]) == (2, 1)
    assert registry.subjects[2] == ["rides-key"]
    instance = await proxy[1].instance("keys", "a", format="avro", **{"auto.offset.reset": "earliest"})
    await proxy[1].post(f"{instance}/subscription", {"topics": ["rides"]})
    answer = await proxy[1].get(f"{instance}/records?timeout=2000")
    assert [one["key"] for one in answer.body] == [None] * 6 + ["a"]


async def test_v2_reads_what_it_has_encoded_in_each_format(proxy, registry):
    pytest.importorskip("google.protobuf")
    ids = {
        "avro": registry.add("a", json.dumps(AVRO)),
        "protobuf": registry.add("b", protobuf_file(), "PROTOBUF"),
        "jsonschema": registry.add("c", '{"type":"object","required":["id"]}', "JSON"),
    }
    values = {"avro": RIDE, "protobuf": {"id": 7}, "jsonschema": {"id": 7, "x": [1]}}
    for form, schema_id in ids.items():
        body = {"value_schema_id": schema_id, "records": [{"value": values[form]}]}
        answer = await proxy[1].post(f"/topics/{form}", body, V2.format(form))
        assert (answer.status, answer.body["value_schema_id"]) == (200, schema_id), answer
        instance = await proxy[1].instance(form, "a", format=form, **{"auto.offset.reset": "earliest"})
        await proxy[1].post(f"{instance}/subscription", {"topics": [form]})
        assert await proxy[1].values(instance, 2000) == [values[form]]
        await proxy[1].produce(form, {"value": {"id": 1}})
        answer = await proxy[1].get(f"{instance}/records?timeout=2000")
        assert (answer.status, answer.body["error_code"]) == (422, 42207)


async def test_what_cannot_be_encoded_is_refused_with_the_code_of_the_proxy(proxy, registry):
    avro, other = registry.add("a", json.dumps(AVRO)), registry.add("b", "{}", "JSON")
    value, wrong = [{"value": RIDE}], [{"value": RIDE}, {"value": {"id": "x"}}]
    cases: list[tuple[dict[str, object], int]] = [
        ({"records": value}, 42202),
        ({"value_schema_id": avro, "records": [{"key": 1, "value": RIDE}]}, 42201),
        ({"value_schema_id": avro, "records": wrong}, 42203),
        ({"value_schema_id": 99, "records": value}, 42205),
        ({"value_schema_id": other, "records": value}, 42205),
        ({"value_schema_id": -1, "records": value}, 42205),
        ({"value_schema": "bad", "records": value}, 422),
        ({"value_schema": 1, "records": value}, 422),
    ]
    for body, code in cases:
        answer = await proxy[1].post("/topics/rides", body, V2.format("avro"))
        assert (answer.status, answer.body["error_code"]) == (422, code), (body, answer)
        assert "Lima" not in answer.body["message"]
    registry.is_silent = True
    body = {"value_schema": json.dumps(AVRO), "records": value}
    answer = await proxy[1].post("/topics/rides", body, V2.format("avro"))
    assert (answer.status, answer.body["error_code"]) == (500, 50003)


async def test_v3_encodes_the_types_of_a_registry(proxy, registry):
    [cluster] = (await proxy[1].get("/v3/clusters")).body["data"]
    path = f"/v3/clusters/{cluster['cluster_id']}/topics/rides/records"
    avro = {"type": "AVRO", "schema": json.dumps(AVRO), "data": RIDE}
    rule = {"type": "JSONSCHEMA", "schema_id": registry.add("r", '{"type":"object"}', "JSON"), "data": {"a": 1}}
    answer = await proxy[1].post(path, {"value": avro}, "application/json")
    assert (answer.status, answer.body["value"]["type"]) == (200, "AVRO"), answer
    entries = {"entries": [{"id": "1", "value": rule}, {"id": "2", "value": {**rule, "data": []}}]}
    answer = await proxy[1].post(f"{path}:batch", entries, "application/json")
    assert [one["id"] for one in answer.body["successes"]] == ["1"]
    assert [one["error_code"] for one in answer.body["failures"]] == [42203]
    assert await stored(proxy, "rides") == [avro_ride(2, 7, "Lima"), framed(1, b'{"a":1}')]
    for value in ({"data": RIDE}, {"type": "AVRO", "data": RIDE}):
        answer = await proxy[1].post(path, {"value": value}, "application/json")
        assert (answer.status, answer.body["error_code"]) == (400, 40002)


async def test_v3_encodes_large_records_in_a_thread(proxy, registry, monkeypatch):
    threads = []
    write = AvroWriter.write

    def noted(writer: AvroWriter, text: bytes) -> bytes:
        threads.append(current_thread())
        return write(writer, text)

    monkeypatch.setattr(AvroWriter, "write", noted)
    [cluster] = (await proxy[1].get("/v3/clusters")).body["data"]
    path = f"/v3/clusters/{cluster['cluster_id']}/topics/rides/records"
    avro = {"type": "AVRO", "schema_id": registry.add("a", json.dumps(AVRO)), "data": {"id": 1, "city": "x" * 8000}}
    await proxy[1].post(path, {"value": {**avro, "data": RIDE}}, "application/json")
    del threads[:]

    async def pieces() -> AsyncIterator[bytes]:
        yield json.dumps({"value": avro}).encode()

    for way, body in (("", {"value": avro}), (":batch", {"entries": [{"id": "1", "value": avro}]}), ("", pieces())):
        answer = await proxy[1].post(path + way, body, "application/json")
        assert answer.status in (200, 207), answer
    assert len(threads) == 3
    assert main_thread() not in threads


UNION = {
    "type": "record",
    "name": "R",
    "namespace": "x",
    "fields": [
        {"name": "a", "type": ["null", "string", {"type": "fixed", "name": "F", "size": 1}], "default": None},
        {"name": "n", "type": "long", "default": 5},
        {"name": "more", "type": {"type": "array", "items": "R"}},
    ],
}


def test_avro_is_written_from_its_json_and_from_bare_unions() -> None:
    import fastavro

    writer = AvroWriter(fastavro.parse_schema(UNION))
    for text in (b'{"a":{"string":"x"},"n":1,"more":[]}', b'{"a":"x","n":1,"more":[]}'):
        assert writer.write(text) == b"\x02\x02x\x02\x00"
    inner = b'{"a":{"x.F":"\\u00ff"},"n":2,"more":[]}'
    assert writer.write(b'{"a":null,"n":1,"more":[%b]}' % inner) == b"\x00\x02\x02\x04\xff\x04\x00\x00"
    deep = b'{"a":null,"n":1,"more":[' * 5000 + b"]}" * 5000
    for text in (b'{"more":[]}', b'{"a":null,"n":1.5,"more":[]}', b'{"a":null,"n":true,"more":[]}', b"[", b"1", deep):
        with pytest.raises(Undecodable):
            writer.write(text)


def test_a_union_of_several_fitting_branches_needs_the_name_and_no_search() -> None:
    """A search through the branches takes 2^120 steps for this value."""
    import fastavro

    b = {"type": "record", "name": "B", "fields": [{"name": "n", "type": ["null", "A", "B"]}]}
    writer = AvroWriter(
        fastavro.parse_schema({"type": "record", "name": "A", "fields": [{"name": "n", "type": ["null", "A", b]}]})
    )
    bad = b'{"n":' * 120 + b'"bad"' + b"}" * 120
    with pytest.raises(Undecodable, match=r"the union at /n is .* null, A, B$"):
        writer.write(bad)
    for last, written in ((b"null", b"\x00"), (b'{"A":{"n":null}}', b"\x02\x00")):
        assert writer.write(b'{"n":{"B":' * 60 + b'{"n":%b}' % last + b"}}" * 60) == b"\x04" * 60 + written
    with pytest.raises(Undecodable, match="at /n/B/n/A/n is"):
        writer.write(b'{"n":{"B":{"n":{"A":{"n":1}}}}}')
    number = AvroWriter(fastavro.parse_schema(["null", "string", "double"]))
    assert number.write(b"1.5")[:1] == number.write(b"1")[:1] == b"\x04"
    with pytest.raises(Undecodable, match=r"null, int, long$"):
        AvroWriter(fastavro.parse_schema(["null", "int", "long"])).write(b"1")
