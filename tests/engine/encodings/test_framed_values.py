"""Values by the ids of a registry. Their schemas and bytes are untrusted."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

pytest.importorskip("fastavro")

from engine.encodings import framed_values
from engine.encodings.framed_values import FramedValues, find_registered
from engine.encodings.registry import Registry
from engine.encodings.undecodable import Undecodable
from tests.gateway.registry.registries import StubRegistry, stub_registry

HEADER = bytes(5)


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    with stub_registry() as stub:
        yield stub


def values_of(registry: StubRegistry, schema: object, references: tuple[dict[str, Any], ...] = ()) -> FramedValues:
    number = registry.add("value", json.dumps(schema), references=references)
    found = find_registered(Registry(registry.url, monotonic), number)
    assert found is not None
    return found.values


def record(name: str, **fields: object) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields.items()]}


def test_a_value_that_is_nested_too_deeply_does_not_follow(registry: StubRegistry) -> None:
    values = values_of(registry, record("N", n=["null", "N"]))
    deep = HEADER + b"\x02" * 5000 + b"\x00"
    assert not values.do_surely_follow({0: deep})
    assert dict(values.find_wrong({0: deep, 1: HEADER + b"\x00"})).keys() == {0}
    with pytest.raises(Undecodable):
        values.text(deep, 1 << 20)


def test_a_type_may_have_items_of_itself(registry: StubRegistry) -> None:
    values = values_of(registry, record("N", op="string", args={"type": "array", "items": "N"}))
    assert values.text(HEADER + b"\x02a\x02\x02b\x00\x00", 1 << 20) == b'{"op":"a","args":[{"op":"b","args":[]}]}'
    with pytest.raises(ValueError, match="items without bytes"):
        values_of(registry, record("M", args={"type": "array", "items": record("E", nothing="null")}))


def test_values_of_many_members_without_bytes_are_not_checked_on_the_loop(registry: StubRegistry) -> None:
    thousand = record("T", x="int", **{f"f{at}": "null" for at in range(1000)})
    values = values_of(registry, thousand)
    assert values.do_surely_follow({0: HEADER + b"\x02"})
    assert not values.do_surely_follow(dict.fromkeys(range(1000), HEADER + b"\x02"))
    assert list(values.find_wrong(dict.fromkeys(range(100), HEADER + b"\x02"))) == []


@pytest.mark.parametrize("fields", [{"x": "int"}, {"x": ["int", "T"]}])
def test_the_values_of_a_request_have_a_bound_together(
    registry: StubRegistry, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object]
) -> None:
    monkeypatch.setattr(framed_values, "REQUEST_BYTES_MAX", 1 << 20)
    values = values_of(registry, record("T", **fields, **{f"f{at}": "null" for at in range(1000)}))
    value = HEADER + (b"\x02" if fields["x"] == "int" else b"\x00\x02")
    assert list(values.find_wrong(dict.fromkeys(range(10), value))) == []
    [(index, text)] = values.find_wrong(dict.fromkeys(range(1000), value))
    assert 10 < index < 20
    assert text.endswith("send fewer")


def test_a_schema_that_many_refer_to_is_asked_for_once(registry: StubRegistry) -> None:
    """Two references a level ask for 2^8 schemas at eight levels otherwise."""
    ids = [registry.add("s0", json.dumps("string"))]
    for level in range(1, 14):
        below = {"name": "r", "subject": f"s{level - 1}", "version": 1}
        ids.append(registry.add(f"s{level}", json.dumps("string"), references=(below, {**below, "name": "q"})))
    assert find_registered(Registry(registry.url, monotonic), ids[8]) is not None
    with pytest.raises(ValueError, match="too many others"):
        find_registered(Registry(registry.url, monotonic), ids[13])
    assert len(registry.requests) < 60


def test_the_json_of_a_value_has_a_bound_before_it_is_made(
    registry: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte is an item with a name of 1000 letters, or a message of a hundred members."""
    from engine.encodings import avro_schema

    ints = {"type": "array", "items": "int"}
    values = values_of(registry, record("T", **{"f" * 40: ints}))
    assert len(values.text(HEADER + b"\xc0\xb8\x02" + b"\x02" * 20_000 + b"\x00", 1 << 20)) > 40_000
    values = values_of(registry, {"type": "array", "items": record("Q", **{"f" * 1000: "int"})})
    many = HEADER + b"\xc0\xb8\x02" + b"\x02" * 20_000 + b"\x00"
    assert len(values.text(many, 32 << 20)) > 20_000_000
    monkeypatch.delattr(avro_schema, "schemaless_reader")  # nothing is decoded
    with pytest.raises(Undecodable, match="too many bytes as JSON"):
        values.text(many, 1 << 20)
    file = FileDescriptorProto(name="f.proto", syntax="proto3")
    message = file.message_type.add(name="M")
    message.field.add(name="more", number=1, type=11, label=3, type_name=".M")
    for number in range(2, 100):
        message.field.add(name=f"{'g' * 100}{number}", number=number, type=5, label=1)
    encoded = b64encode(file.SerializeToString()).decode()
    found = find_registered(Registry(registry.url, monotonic), registry.add("p", encoded, "PROTOBUF"))
    assert found is not None
    assert len(found.values.text(HEADER + b"\x00" + b"\x0a\x00" * 50, 1 << 20)) > 500_000
    with pytest.raises(Undecodable, match="too many bytes as JSON"):
        found.values.text(HEADER + b"\x00" + b"\x0a\x00" * 150, 1 << 20)
