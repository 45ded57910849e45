"""What a process keeps of a registry: ages, one request an id, bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from time import monotonic

import pytest

from engine.encodings.registry import Registry
from gateway.http.problems import Problem
from gateway.registry import registered_schemas
from gateway.registry.registered_schemas import REFRESH_S, SILENT_S, UNKNOWN_S, RegisteredSchemas, SchemaText
from tests.gateway.registry.registries import AVRO, StubRegistry, stub_registry

pytest.importorskip("fastavro")


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    with stub_registry() as stub:
        yield stub


async def test_an_unknown_id_counts_for_a_moment_and_a_known_one_outlives_the_registry(registry: StubRegistry) -> None:
    time = Time()
    schemas = RegisteredSchemas(Registry(registry.url, monotonic), time)
    await schemas.fetch([1])
    asked = schemas.find(1)
    assert asked is not None
    assert asked.reason == "the registry has no schema 1"
    registry.add("a-value", json.dumps(AVRO))
    time.now += UNKNOWN_S + 1
    assert schemas.find(1) is None
    await schemas.fetch([1])
    asked = schemas.find(1, "a-value")
    assert asked is not None
    assert asked.found is not None
    assert schemas.find(1, "b-value") is asked  # the answer is a moment old
    time.now += UNKNOWN_S + 1
    assert schemas.find(1, "b-value") is None  # the subject may have got it meanwhile
    registry.is_silent = True
    time.now += REFRESH_S
    assert schemas.find(1, "a-value") is asked
    with pytest.raises(Problem, match="schema 1 is not known here yet"):
        await schemas.fetch([1])
    assert schemas.find(1, "a-value") is asked
    schemas.close()


async def test_requests_at_once_for_an_id_are_one(registry: StubRegistry) -> None:
    registry.add("a-value", json.dumps(AVRO))
    schemas = RegisteredSchemas(Registry(registry.url, monotonic), Time())
    await asyncio.gather(*(schemas.fetch([1]) for _ in range(20)))
    assert registry.requests == ["/schemas/ids/1", "/schemas/ids/1/versions"]
    schemas.close()


async def test_made_up_ids_displace_no_known_schema(registry: StubRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_schemas, "KEPT_MAX", 3)
    registry.add("a-value", json.dumps(AVRO))
    schemas = RegisteredSchemas(Registry(registry.url, monotonic), Time())
    for schema_id in range(1, 9):
        await schemas.fetch([schema_id])
    assert [schema_id for schema_id in range(1, 9) if schemas.find(schema_id)] == [1, 6, 7, 8]
    monkeypatch.setattr(registered_schemas, "ASKED_MAX", 2)
    with pytest.raises(Problem):
        await schemas.fetch([11, 12, 13])
    schemas.close()


async def test_a_schema_that_cannot_be_used_is_a_reason(registry: StubRegistry) -> None:
    empty = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
    for text, kind in (
        ("{", "AVRO"),
        (json.dumps(empty), "AVRO"),
        ("message A {}", "PROTOBUF"),
        ('{"$ref":"#"}', "JSON"),
    ):
        registry.add("a-value", text, kind)
    registry.add("a-value", "x", "XML")
    schemas = RegisteredSchemas(Registry(registry.url, monotonic), Time())
    await schemas.fetch(range(1, 6))
    for schema_id in range(1, 6):
        asked = schemas.find(schema_id)
        assert asked is not None
        assert asked.reason.startswith(f"schema {schema_id} is not usable: ")
    schemas.close()


async def test_a_registry_that_registers_nothing_is_left_alone(
    registry: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time()
    schemas = RegisteredSchemas(Registry(registry.url, monotonic), time)
    registry.is_silent = True
    for text in ('"int"', '"long"'):
        with pytest.raises(Problem, match=r"503"):
            await schemas.register(SchemaText("a-value", "AVRO", text))
    assert len(registry.requests) == 1
    registry.is_silent = False
    time.now += SILENT_S
    await schemas.register(SchemaText("a-value", "AVRO", '"int"'))
    for made_up in (1 << 31, -1):
        time.now += SILENT_S
        monkeypatch.setattr(registry, "add", lambda *_, made_up=made_up: made_up)
        with pytest.raises(Problem, match=r"not known here"):
            await schemas.register(SchemaText("a-value", "AVRO", f'"long{made_up}"'))
    schemas.close()
