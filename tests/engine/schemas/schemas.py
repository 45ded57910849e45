"""Random schemas and values, few enough that they often meet."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "c/d")
TAGS = ("t", "u")
WORDS = ("", "x", "long text", "é", *TAGS)
WHOLE = (-1, 0, 1, 3, 2**53, 2**53 + 1, 2**70)
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from(WHOLE)
    | st.sampled_from([-0.5, 1.0, 2.5, 1e300])
    | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)
_bounds = st.fixed_dictionaries(
    {},
    optional={
        "minimum": st.sampled_from([-1, 0, 0.5, 2**53]),
        "maximum": st.sampled_from([1, 2.5, 2**53, 2**53 + 1]),
        "exclusiveMinimum": st.sampled_from([-1, 0, 1.5]),
        "exclusiveMaximum": st.sampled_from([3, 2.5]),
    },
)
_lengths = st.fixed_dictionaries({}, optional={"minLength": st.integers(0, 2), "maxLength": st.integers(0, 9)})
_plain = st.one_of(
    st.sampled_from([True, {}, {"type": "null"}, {"type": "boolean"}, {"type": ["string", "null"]}]),
    st.sampled_from([{"enum": ["x", "é"]}, {"enum": [0, 1, 3]}, {"const": "x"}, {"type": "string", "enum": ["", "x"]}]),
    st.sampled_from([{"enum": [None, "x"]}, {"not": {"type": "null"}}, {"type": "string", "pattern": "^x"}, False]),
    st.sampled_from(
        [{"minLength": 1}, {"minimum": 1}, {"$ref": "#/$defs/word"}, {"type": "number", "multipleOf": 0.5}]
    ),
    st.sampled_from(["integer", "number"]).flatmap(lambda kind: _bounds.map(lambda bounds: {"type": kind, **bounds})),
    _lengths.map(lambda bounds: {"type": "string", **bounds}),
)


def _grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.fixed_dictionaries(
        {"type": st.sampled_from(["object", ["object", "null"]])},
        optional={
            "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
            "required": st.lists(st.sampled_from(NAMES), unique=True, max_size=2),
            "additionalProperties": inner | st.booleans(),
            "patternProperties": st.just({"^b": {"type": "string"}}),
            "minProperties": st.integers(0, 2),
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": inner,
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 3),
            "uniqueItems": st.booleans(),
        },
    )
    unions = st.lists(inner, min_size=1, max_size=2).flatmap(
        lambda branches: st.sampled_from(["anyOf", "allOf", "oneOf"]).map(lambda word: {word: branches})
    )
    tagged = st.tuples(st.sampled_from(["anyOf", "oneOf"]), inner, inner, st.booleans()).map(
        lambda drawn: {drawn[0]: [_tagged(TAGS[0], drawn[1], drawn[3]), _tagged(TAGS[1], drawn[2], not drawn[3])]}
    )
    return objects | arrays | unions | tagged | inner.map(lambda schema: {"anyOf": [schema, {"type": "null"}]})


def _tagged(tag: str, member: Any, is_open: bool) -> Any:
    properties = {"b": {"const": tag}, "a": member}
    return {"type": "object", "properties": properties, "required": ["b"], "additionalProperties": is_open}


schemas: st.SearchStrategy[Any] = st.recursive(_plain, _grow, max_leaves=6).map(
    lambda schema: (
        {"$defs": {"word": {"type": "string", "maxLength": 1}}, **schema} if isinstance(schema, dict) else schema
    )
)
