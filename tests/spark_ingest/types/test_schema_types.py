"""The columns that a topic's JSON Schema declares: their types, and the tables of topics that have one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from engine.directory.topics import TopicRecord
from engine.testing.memory_store import MemoryStore
from engine.tiering.manifest.stored_topic import description_key, encode_description
from spark_ingest.plan import Recipe
from spark_ingest.types.schema_types import schema_members
from tests.spark_ingest.jobs import another_output, head_of, run_job, table_rows
from tests.spark_ingest.tiered import CLUSTER, TOPIC_ID, TieredLog, row

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "fare": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "city": {"$ref": "#/$defs/city"},
        "stop": {"type": ["object", "null"], "properties": {"name": {"type": "string"}, "number": {"type": "integer"}}},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "any": {},
    },
    "$defs": {"city": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
}
COLUMNS = [
    ["id", "bigint"],
    ["fare", "double"],
    ["at", "timestamp"],
    ["city", "string"],
    ["stop", ["struct", [["name", "string"], ["number", "bigint"]]]],
    ["tags", ["array", "string"]],
    ["any", "null"],
]


def test_a_schema_declares_its_members() -> None:
    assert schema_members(json.dumps(SCHEMA)) == COLUMNS


@pytest.mark.parametrize(
    "schema", ["true", "{", "{}", '{"type":"string"}', '{"type":"array","items":{}}', '{"$ref":"#/x"}']
)
def test_a_schema_without_members_declares_none(schema: str) -> None:
    assert schema_members(schema) == []


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": ["integer", "number", "null"]}, "double"),
        ({"type": ["integer", "string"]}, "null"),
        ({"const": "x"}, "string"),
        ({"enum": [1, "x"]}, "null"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "null"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "array", "items": False}, "null"),
        ({"type": "object"}, "null"),
    ],
)
def test_the_type_of_a_part(part: dict[str, Any], kind: object) -> None:
    assert schema_members(json.dumps({"type": "object", "properties": {"a": part, "b": {"type": "boolean"}}})) == [
        ["a", kind],
        ["b", "boolean"],
    ]


def with_schema(store: MemoryStore, schema: object) -> TieredLog:
    topic = TopicRecord("flights", TOPIC_ID, 1, 1, {"value_schema": json.dumps(schema)}, 0)
    store.put(description_key(CLUSTER, "flights", TOPIC_ID), encode_description(topic))
    return TieredLog(store)


def test_a_table_has_the_columns_of_the_schema_before_a_value_has_them() -> None:
    source, output = MemoryStore(), MemoryStore()
    log = with_schema(source, SCHEMA)
    log.add(0, [row(b'{"id":1,"fare":2}')])
    run_job(source, output)
    assert head_of(output).schemas["flights"].members == COLUMNS
    [first] = table_rows(output)
    assert (first["id"], first["fare"], first["at"], first["stop"], first["_extra"]) == (1, 2.0, None, None, None)
    log.add(0, [row(b'{"id":2,"at":"2026-01-02T03:04:05Z","stop":{"name":"Z","number":7}}'), row(b'{"id":"old"}')])
    run_job(source, output)
    _, second, misfit = sorted(table_rows(output), key=lambda one: one["_offset"])
    assert second["at"] == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert second["stop"] == {"name": "Z", "number": 7}
    assert (misfit["id"], json.loads(misfit["_extra"])) == (None, {"id": "old"})


def test_a_published_column_keeps_its_type_and_steps_rename_the_declared_ones() -> None:
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    log.add(0, [row(b'{"fare":2,"city":"Z"}')])
    run_job(source, output)
    with_schema(source, SCHEMA)
    log.add(0, [row(b'{"fare":3}')])
    run_job(source, output)
    members = dict(head_of(output).schemas["flights"].members)
    assert (members["fare"], members["at"]) == ("bigint", "timestamp")
    renamed = another_output()
    steps = ({"do": "rename", "members": {"id": "number"}}, {"do": "drop", "members": ["at"]})
    run_job(source, renamed, recipe=Recipe(transforms=steps))
    members = dict(head_of(renamed).schemas["flights"].members)
    assert members["number"] == "bigint"
    assert members.keys() & {"id", "at"} == set()
