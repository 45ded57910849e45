"""Which values follow a schema, and which schemas are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import InvalidConfig
from engine.schemas.check_cost import number_shapes_plainly
from engine.schemas.schema_text import SUBSCHEMAS_MAX
from engine.schemas.value_schema import ValueSchema
from tests.codecs import COMPILED, needs_compiled
from tests.engine.schemas.schemas import schemas, values

RIDE = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "rider": {"anyOf": [{"type": "object", "properties": {"name": {"type": "string"}}}, {"type": "null"}]},
        "a/b~c": {"type": "array", "items": {"enum": ["x", "y"]}},
    },
    "required": ["id"],
    "additionalProperties": False,
}


def compiled(schema: Any) -> ValueSchema:
    return ValueSchema(orjson.dumps(schema).decode())


@pytest.mark.parametrize(
    ("value", "pointer", "text"),
    [
        (b'{"id":-1}', "/id", "less than the minimum of 0"),
        (b"{}", "", '"id" is a required property'),
        (b'{"id":1,"other":2}', "", "'other' was unexpected"),
        (b'{"id":1,"rider":{"name":7}}', "/rider/name", 'not of type "string"'),
        (b'{"id":1,"a/b~c":["x","z"]}', "/a~1b~0c/1", 'not one of "x" or "y"'),
        (b'{"id":1', "", "not JSON"),
        (b'{"id":1}{"id":1}', "", "not JSON"),
        (b"\xff", "", "not JSON"),
        (b"", "", "not JSON"),
        (b"[" * 100_000, "", "not JSON"),
        (None, "", 'not of type "object"'),
    ],
)
def test_the_first_violation_has_its_place_and_its_reason(value: bytes | None, pointer: str, text: str) -> None:
    violation = compiled(RIDE).find_violation([b'{"id":1,"rider":null}', value], is_null_allowed=False)
    assert violation is not None
    assert (violation.record, violation.pointer) == (1, pointer)
    assert text in violation.text


@pytest.mark.parametrize("value", [b'{"id":1,"other":"\xff"}', b'{"id":1,"\xff":2}'])
def test_a_text_that_no_type_names_is_utf8_too(value: bytes) -> None:
    schema = compiled({"type": "object", "properties": {"id": {"type": "integer"}}})
    assert schema.find_violation([value.replace(b"\xff", "ä".encode())], is_null_allowed=False) is None
    assert schema.find_violation([value], is_null_allowed=False) is not None
    assert not schema.do_lines_follow(value + b"\n", 1)


def test_the_text_of_a_violation_has_nothing_of_the_value_and_an_end() -> None:
    schema = compiled({"properties": {"a": {"enum": [f"name{n}" for n in range(1000)]}, "b": {"type": "integer"}}})
    for value in (b'{"a":"secret"}', b'{"b":"secret"}', b'{"a":{"b":"secret"}}'):
        violation = schema.find_violation([value], is_null_allowed=False)
        assert violation is not None
        assert "secret" not in violation.text
        assert len(violation.text) <= 500


def test_a_tombstone_is_taken_where_null_is_allowed() -> None:
    assert compiled(RIDE).find_violation([None], is_null_allowed=True) is None


@pytest.mark.parametrize("more", [{}, {"minProperties": 1}], ids=["typed", "untyped"])
def test_lines_follow_chunk_by_chunk(more: dict[str, Any]) -> None:
    schema, lines = compiled({**RIDE, **more}), [b'{"id":%d}' % number for number in range(20_000)]
    assert schema.do_lines_follow(b"\n".join(lines), len(lines))
    assert schema.do_lines_follow(b"\n".join(lines) + b"\n\n", len(lines))
    assert schema.is_typed is (not more)
    assert not schema.do_lines_follow(b"\n".join(lines), len(lines) - 1)
    for at in (0, 7_000, 19_999):
        wrong = [*lines[:at], b'{"id":-1}', *lines[at + 1 :]]
        assert not schema.do_lines_follow(b"\n".join(wrong), len(lines))


def oracle(schema: Any) -> Any:
    """Return another implementation's validator. Its import takes a second in each worker that collects."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema)


@settings(max_examples=300, deadline=None)
@given(schemas, values)
def test_a_value_follows_as_another_validator_says(schema: Any, value: Any) -> None:
    validator = oracle(schema)
    parsed = orjson.loads(encoded := msgspec.json.encode(value))  # as a reader with doubles has it
    violation = compiled(schema).find_violation([encoded], is_null_allowed=False)
    assert (violation is None) == validator.is_valid(value) or validator.is_valid(value) != validator.is_valid(parsed)


@settings(max_examples=300, deadline=None)
@given(schemas, st.lists(values, max_size=3))
def test_values_that_are_taken_together_follow_the_schema_each(schema: Any, taken: list[Any]) -> None:
    """By their type and its rests, as lines and as values."""
    checked, encoded = compiled(schema), list(map(msgspec.json.encode, taken))
    lines = b"\n".join(encoded)
    do_follow = checked.do_values_follow(encoded, is_null_allowed=False)
    assert do_follow == checked.do_lines_follow(lines, len(encoded))
    if do_follow:
        assert all(map(oracle(schema).is_valid, taken))


def ride_of(kind: str, **more: Any) -> Any:
    member = {"kind": {"const": kind}, "n": {"type": "integer"}, **more}
    return {"type": "object", "properties": member, "required": ["kind"], "additionalProperties": False}


CODE = {"type": "string", "pattern": "^[a-z]+$"}


@pytest.mark.parametrize(
    ("schema", "good", "bad", "rests"),
    [
        (RIDE, b'{"id":1}', b'{"id":"1"}', 0),
        ({"oneOf": [ride_of("a"), ride_of("b")]}, b'{"n":1,"kind":"b"}', b'{"kind":"c"}', 0),
        ({"anyOf": [ride_of("a"), ride_of("b", code=CODE)]}, b'{"kind":"b","code":"x"}', b'{"kind":"b","code":"X"}', 1),
        ({"anyOf": [ride_of("a"), ride_of("b", code=CODE)]}, b'{"kind":"a"}', b'{"kind":"a","code":"x"}', 1),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, b"1", b"true", 0),
        ({"properties": {"a": {}, "b": CODE}, "type": "object"}, b'{"a":[1]}', b'{"b":"x\\n"}', 1),
        ({"type": "array", "items": {"$ref": "#/$defs/a~1b"}, "$defs": {"a/b": CODE}}, b'["a","b"]', b'["a","B"]', 1),
        ({"type": "object", "additionalProperties": {"not": {"const": 1}}}, b'{"a":2}', b'{"a":2,"b":1}', 1),
        ({"$id": "https://example.org/x", "$defs": {"w": CODE}, "not": {"$ref": "#/$defs/w"}}, b'"A"', b'"a"', 1),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}}, b"{}", b'{"a":1}', 1),
        ({"type": "object", "properties": {'%"é/': {"multipleOf": 2}}}, b"{}", '{"%\\"é/":3}'.encode(), 1),
    ],
)
def test_a_type_leaves_few_rests_to_check(schema: Any, good: bytes, bad: bytes, rests: int) -> None:
    checked = compiled(schema)
    assert repr(checked) == f"ValueSchema(rests={rests})"
    assert checked.do_lines_follow(b"\n".join([good] * 999), 999)
    assert checked.do_values_follow([good] * 999, is_null_allowed=False)
    assert not checked.do_lines_follow(b"\n".join([*[good] * 999, bad]), 1000)
    assert not checked.do_values_follow([*[good] * 999, bad], is_null_allowed=False)
    assert [one.record for one in checked.violations([good, bad] * 500, is_null_allowed=False)] == [*range(1, 1000, 2)]


def test_many_values_that_take_long_together_are_refused() -> None:
    schema = compiled(chained(10))  # each value may take half a second
    values = [b"1"] * 10
    assert schema.find_violation(values[:2], is_null_allowed=False) is None
    refused = list(schema.violations(values, is_null_allowed=False))
    assert "send fewer at once" in refused[0].text
    assert refused[0].record > 1
    assert refused[-1].record == 9
    assert not schema.do_lines_follow(b"\n".join(values), len(values))


def deep(levels: int) -> Any:
    return {"items": deep(levels - 1)} if levels else {}


def doubled(levels: int) -> Any:
    """Returns a schema that has 2^levels subschemas once its references are followed."""
    defs: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**defs, f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (5, "neither an object"),
        ({"type": "text"}, "/type"),
        ({"properties": {"a": {"minLength": -1}}}, "/properties/a/minLength"),
        ({"$ref": "https://example.org/schema"}, "not a JSON pointer within"),
        ({"$ref": "file:///etc/passwd"}, "not a JSON pointer within"),
        ({"items": {"$id": "https://example.org/", "$ref": "#/a"}}, "$id"),
        ({"$dynamicRef": "#a"}, "$dynamicRef"),
        ({"$ref": "#/absent"}, "names nothing"),
        ({"$ref": "#"}, "leads to itself"),
        ({"anyOf": [{"items": {"$ref": "#"}}]}, "leads to itself"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/%61"}}}, "$ref": "#/$defs/a"}, "itself"),
        (doubled(60), f"more than {SUBSCHEMAS_MAX} subschemas"),
        ({"anyOf": [{}] * (SUBSCHEMAS_MAX + 1)}, f"more than {SUBSCHEMAS_MAX} subschemas"),
        (deep(33), "deeper than"),
        ({"pattern": "(?=a)"}, "/pattern"),
        ({"pattern": r"(a)\1"}, "/pattern"),
        ({"pattern": "(a{1000}){1000}"}, "20000 states"),
        ({"anyOf": [{"pattern": r"\p{L}{15}"}] * 30}, "20000 states"),
        ({"pattern": r"\p{L}{300}"}, "/pattern"),
        ({"patternProperties": {"(": {}}}, "patternProperties"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "$schema"),
    ],
)
def test_schemas_that_could_harm_a_node_are_refused(schema: Any, reason: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        compiled(schema)
    assert reason in refused.value.detail
    assert len(refused.value.detail) < 700


@pytest.mark.parametrize("text", ["", "{", "{}{}", "nul", '{"a":\ud800}', "[" * 100_000])
def test_a_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        ValueSchema(text)


def test_a_regular_expression_that_would_backtrack_takes_linear_time() -> None:
    """A backtracking engine would need 2^100,000 steps."""
    schema = compiled({"type": "string", "pattern": "^(a+)+$"})
    assert schema.find_violation([b'"%sb"' % (b"a" * 100_000)], is_null_allowed=False) is not None


@pytest.mark.parametrize("more", [{}, {"type": "array"}])
def test_earlier_drafts_keep_their_meaning(more: dict[str, Any]) -> None:
    tuples = {
        **more,
        "$schema": "http://json-schema.org/draft-07/schema#",
        "items": [{"type": "string"}],
        "additionalItems": False,
    }
    schema = compiled(tuples)
    assert schema.find_violation([b'["a"]'], is_null_allowed=False) is None
    assert schema.find_violation([b'["a",1]'], is_null_allowed=False) is not None


@pytest.mark.parametrize(
    ("schema", "item"),
    [
        ({"not": {"enum": ["a", *range(100, 6000)]}}, "0"),
        ({"not": {"enum": [n + 0.5 for n in range(1000)]}}, "1.5e300"),
        ({"allOf": [{"contains": {"const": n}, "minContains": 0} for n in range(300)]}, "[0,0,0]"),
        ({"allOf": [{"minimum": -n - 0.5} for n in range(480)]}, "1e300"),
        ({"patternProperties": {f"[xy]*x[xy]{{1800}}z{n}": {} for n in range(10)}}, '{"xyxyxy":0}'),
    ],
    ids=["enum", "doubles", "contains", "bounds", "patterns"],
)
def test_a_large_value_that_would_be_checked_for_long_is_refused_and_a_small_one_is_not(schema: Any, item: str) -> None:
    checked = compiled({"items": schema})
    assert checked.find_violation([f"[{item}]".encode()], is_null_allowed=False) is None
    large = f"[{','.join([item] * 30_000)}]".encode()
    violation = checked.find_violation([large], is_null_allowed=False)
    assert violation is not None
    assert "takes too long" in violation.text
    assert not checked.do_lines_follow(large, 1)


@pytest.mark.parametrize("number", [b"1e300", b"1E+300", b"1.5e22"])
def test_many_large_doubles_are_not_read_by_the_parser_that_is_slow_for_them(number: bytes) -> None:
    """It takes 30 us for each, where the exact look takes less than one."""
    checked = compiled({"type": "array", "items": {"type": "number"}})
    few, many = (b"[%s]" % b",".join([number] * count) for count in (300, 3000))
    for taken in (few, many):
        assert checked.do_lines_follow(taken, 1) is (taken is few)
        assert checked.do_values_follow([taken], is_null_allowed=False) is (taken is few)
        assert checked.find_violation([taken], is_null_allowed=False) is None


def test_a_large_value_of_an_everyday_schema_is_checked() -> None:
    pattern = {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}$"}
    ride = {"type": "object", "properties": {"id": pattern, "n": {"type": "number", "minimum": 0.5}}}
    value = orjson.dumps([{"id": "00000000-0000-0000", "n": 1}] * 25_000)
    assert compiled({"items": ride}).find_violation([value], is_null_allowed=False) is None


def chained(levels: int) -> Any:
    more = {"anyOf": [chained(levels - 1)]} if levels else {}
    return {"unevaluatedProperties": {"minimum": 0}, **more}


def by_references(levels: int) -> Any:
    steps = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**steps, f"a{levels}": {}}}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (chained(12), "checked for seconds"),
        (by_references(900), "nested deeper than 128"),
        ({"allOf": [{"pattern": "[xy]{2000}"}] * 11}, "more than about 20000 states"),
    ],
)
def test_a_schema_that_takes_long_for_any_value_is_refused(schema: Any, text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        compiled(schema)


@needs_compiled
@settings(max_examples=300, deadline=None)
@given(st.text("0019eE+-. ,", max_size=60).map(str.encode), st.integers(14, 19))
def test_the_codec_sees_the_same_numbers_as_its_twin(text: bytes, digits: int) -> None:
    assert COMPILED is not None
    for data in (text, text + b"7" * digits, b"7" * digits + text):
        assert COMPILED.number_shapes(data) == number_shapes_plainly(data)


def test_values_beside_exact_numbers_take_longer() -> None:
    schema = compiled({"type": "object", "properties": {"n": {"oneOf": [{"type": "number", "multipleOf": 0.5}]}}})
    taken = [b'{"n":%d}' % number for number in range(2_000)]
    units = 300_000
    assert schema.do_lines_follow(b"\n".join(taken), len(taken), units)
    assert not schema.do_lines_follow(b"\n".join([*taken, b'{"n":1e3}'] * 2), 2 * len(taken) + 2, units)
    assert schema.find_violation([*taken, b'{"n":1e3}'], is_null_allowed=False) is None
