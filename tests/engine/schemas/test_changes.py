"""Which changes of a schema keep values valid, and how versions count."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings

from engine.errors import InvalidConfig
from engine.schemas.changes import find_narrowing, merged_settings
from tests.engine.schemas.schemas import schemas, values

CLOSED = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def with_member(schema: dict[str, Any], name: str, member: Any) -> dict[str, Any]:
    return {**schema, "properties": {**schema["properties"], name: member}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (CLOSED, with_member(CLOSED, "b", {"type": "string"})),
        (CLOSED, {**CLOSED, "required": []}),
        (CLOSED, {**CLOSED, "additionalProperties": True}),
        (
            CLOSED,
            {**CLOSED, "title": "Rides", "$comment": "said", "properties": {"a": {"type": "integer", "default": 1}}},
        ),
        (CLOSED, with_member(CLOSED, "a", {"type": "number"})),
        (CLOSED, with_member(CLOSED, "a", {"anyOf": [{"type": "integer"}, {"type": "null"}]})),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}),
        ({"enum": [1, {"a": [True]}, None]}, {"enum": [None, {"a": [True]}, 1.0]}),
        ({"enum": list(range(8000))}, {"enum": list(reversed(range(8000)))}),
        ({"const": "a", "type": "string"}, {"enum": ["a", "b"], "type": "string"}),
        ({"type": "string", "maxLength": 3, "pattern": "a"}, {"type": "string", "maxLength": 4}),
        ({"$ref": "#/$defs/a", "$defs": {"a": CLOSED}}, CLOSED),
        (CLOSED, {}),
        (False, CLOSED),
    ],
)
def test_a_change_that_takes_all_earlier_values_is_compatible(old: Any, new: Any) -> None:
    assert find_narrowing(old, new) is None


@pytest.mark.parametrize(
    ("old", "new", "pointer", "text"),
    [
        (CLOSED, {**CLOSED, "required": ["a", "b"]}, "/b", "required now"),
        (CLOSED, with_member(CLOSED, "a", {"type": "string"}), "/a", "integer is not taken any more"),
        ({}, with_member({"properties": {}}, "b", {"type": "string"}), "/b", "no additionalProperties: false"),
        ({"type": "object"}, {"type": "object", "additionalProperties": False}, "", "additionalProperties"),
        ({"enum": ["a", True]}, {"enum": ["a", 1]}, "", "fewer values"),
        ({"enum": [[1]]}, {"enum": [[True]]}, "", "fewer values"),
        ({"enum": [True]}, {"enum": [[1]]}, "", "fewer values"),
        ({"items": {"maximum": 5}}, {"items": {"maximum": 4}}, "/*", "maximum is tighter"),
        ({"type": "string"}, {"type": "string", "pattern": "a"}, "", "pattern is new"),
        (
            {"patternProperties": {"a": {}}, "additionalProperties": False},
            {"additionalProperties": False},
            "",
            "beside",
        ),
        ({"if": {"minimum": 1}, "then": False}, {"then": False}, "", "if"),
        ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "", "anyOf"),
        (CLOSED, False, "", "no value"),
    ],
)
def test_a_change_that_may_refuse_an_earlier_value_is_named(old: Any, new: Any, pointer: str, text: str) -> None:
    narrowing = find_narrowing(old, new)
    assert narrowing is not None
    assert narrowing.pointer == pointer
    assert text in narrowing.text


def oracle(schema: Any) -> Any:
    """Return another implementation's validator. Its import takes a second in each worker that collects."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema)


@settings(max_examples=500, deadline=None)
@given(schemas, schemas, values)
def test_a_value_of_the_old_schema_follows_a_compatible_one(old: Any, new: Any, value: Any) -> None:
    if find_narrowing(old, new) is None and oracle(old).is_valid(value):
        assert oracle(new).is_valid(value)


def text_of(schema: Any) -> str:
    return orjson.dumps(schema).decode()


def test_versions_count_the_changes() -> None:
    wide, narrow = text_of(CLOSED), text_of({**CLOSED, "required": ["a", "b"]})
    config: dict[str, object] = {}
    for change, version in (
        ({"value_schema": narrow}, 1),
        ({"value_schema": narrow, "value_schema_version": 1}, 1),
        ({"retention_ms": 60_000}, 1),
        ({"value_schema": wide}, 2),
        ({"value_schema": narrow, "value_schema_version": 3}, 3),
        ({"value_schema": ""}, 4),
        ({"value_schema": narrow}, 5),
    ):
        config = merged_settings(config, change)
        assert config.get("value_schema_version", 1) == version
    assert config["retention_ms"] == 60_000


@pytest.mark.parametrize(
    "given",
    [
        {"value_schema": text_of({**CLOSED, "required": ["a", "b"]})},
        {"value_schema": text_of({**CLOSED, "required": ["a", "b"]}), "value_schema_version": 1},
        {"value_schema": text_of({**CLOSED, "required": ["a", "b"]}), "value_schema_version": 3},
        {"value_schema_version": 2},
        {"value_schema": "{", "value_schema_version": 2},
    ],
)
def test_a_change_without_its_version_or_without_a_schema_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig):
        merged_settings({"value_schema": text_of(CLOSED)}, given)


def test_there_is_no_version_after_the_last() -> None:
    stored = {"value_schema": "{}", "value_schema_version": 2**31 - 1}
    with pytest.raises(InvalidConfig, match="value_schema_version is 2147483648"):
        merged_settings(stored, {"value_schema": ""})


def test_a_topic_without_a_schema_stores_none_of_its_settings() -> None:
    assert merged_settings({}, {"value_schema": "", "value_schema_version": 1, "retention_ms": None}) == {
        "retention_ms": None
    }
