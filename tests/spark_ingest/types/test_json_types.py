"""Types of JSON members: how they are inferred, merged, and published permanently."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.output.schema_object import spark_ddl
from spark_ingest.types.json_types import (
    COLUMNS_MAX,
    MEMBERS_MAX,
    columns,
    evolve,
    infer,
    merge,
    merge_all,
    published_type,
)
from spark_ingest.types.standard_columns import STANDARD_COLUMNS
from tests.spark_ingest.json_values import OBJECTS, VALUES


def members_of(*values: dict[str, object]) -> list[list[object]]:
    merged = merge_all(infer(value) for value in values)
    return merged[1] if merged != "null" else []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([None, None], "null"),
        ([1, None], "bigint"),
        ([1, 2.5], "double"),
        ([1, "x"], "json"),
        ([True, 1], "json"),
        ([2**63], "json"),
        ([[1], [2.5, None]], ["array", "double"]),
        ([[1], {"a": 1}], "json"),
        ([{"a": 1}, {"b": "x"}], ["struct", [["a", "bigint"], ["b", "string"]]]),
    ],
)
def test_types_widen_and_conflicts_become_json(values: list[object], expected: object) -> None:
    assert merge_all(map(infer, values)) == expected


@given(VALUES, VALUES)
def test_merging_does_not_depend_on_order_but_for_member_order(left: object, right: object) -> None:
    def sorted_type(kind: object) -> object:
        if isinstance(kind, str):
            return kind
        inner = kind[1]
        return [kind[0], sorted_type(inner) if kind[0] == "array" else sorted([n, sorted_type(k)] for n, k in inner)]

    there, back = merge(infer(left), infer(right)), merge(infer(right), infer(left))
    assert repr(sorted_type(there)) == repr(sorted_type(back))
    assert merge(there, infer(left)) == there


@given(st.lists(OBJECTS, max_size=6))
def test_a_published_column_keeps_its_name_place_and_scalar_type(values: list[dict[str, object]]) -> None:
    history = [[]]
    for value in values:
        history.append(evolve(history[-1], members_of(value)))
    for before, after in pairwise(history):
        kept = [name for name, _ in before]
        assert [name for name, _ in after][: len(kept)] == kept
        now = dict(after)
        assert all(now[name] == kind for name, kind in before if isinstance(kind, str) and kind != "null")


@given(st.lists(OBJECTS, max_size=4))
def test_column_names_differ_for_spark(values: list[dict[str, object]]) -> None:
    names = [name.lower() for name, _ in columns(evolve([], members_of(*values)))]
    assert len(set(names)) == len(names)
    assert not set(names) & {*STANDARD_COLUMNS, "dt", "hr", ""}


@given(VALUES)
def test_settling_is_settled(value: object) -> None:
    once = published_type(infer(value))
    assert published_type(once) == once


def test_a_member_that_was_only_null_becomes_a_column_when_it_holds_something() -> None:
    first = evolve([], members_of({"a": None, "b": []}))
    assert columns(first) == []
    assert columns(evolve(first, members_of({"a": 1, "b": ["x"]}))) == [["a", "bigint"], ["b", ["array", "string"]]]


def test_a_struct_gains_members_and_keeps_its_old_ones() -> None:
    first = evolve([], members_of({"a": {"x": 1, "y": None}}))
    second = evolve(first, members_of({"a": {"x": "text", "y": 2, "z": True}}))
    assert second == [["a", ["struct", [["x", "bigint"], ["y", "bigint"], ["z", "boolean"]]]]]


def test_a_bigint_that_was_published_stays_one() -> None:
    assert evolve([["a", "bigint"]], [["a", "double"]]) == [["a", "bigint"]]


def test_members_beyond_the_limit_get_no_column() -> None:
    wide = evolve([], [[f"m{at}", "bigint"] for at in range(COLUMNS_MAX * 2)])
    assert len(columns(wide)) <= COLUMNS_MAX


def test_a_topic_with_endless_names_has_a_bounded_schema() -> None:
    members: list[list[object]] = [["id", "bigint"]]
    for run in range(4):
        members = evolve(members, [*([f"r{run}n{at}", "bigint"] for at in range(3000)), ["id", "bigint"]])
    assert len(members) <= MEMBERS_MAX + COLUMNS_MAX
    assert members[0] == ["id", "bigint"]
    cleaned = evolve([[f"n{at}", "null"] for at in range(60_000)] + [["late", "string"]], [])
    assert columns(cleaned) == [["late", "string"]]  # as an older release stored it
    assert len(cleaned) <= MEMBERS_MAX + 1


def test_the_merged_type_of_objects_with_endless_names_is_bounded() -> None:
    objects = [infer({f"{at}-{inner}": 1 for inner in range(60)}) for at in range(6)]
    assert merge_all(objects) == merge_all(reversed(objects)) == "json"


def test_an_object_keyed_by_data_is_kept_as_json_text() -> None:
    assert published_type(infer({f"id-{at}": 1 for at in range(500)})) == "json"


def test_ddl_quotes_names() -> None:
    members = [["a`b", ["struct", [["x y", ["array", "json"]], ["gone", "null"]]]], ["n", "null"], ["d", "double"]]
    assert spark_ddl(members) == "`a``b` STRUCT<`x y`: ARRAY<STRING>>, `d` DOUBLE"


def test_a_table_has_a_bounded_number_of_leaves_and_keeps_those_that_it_has() -> None:
    objects = [[f"o{at}", ["struct", [[f"m{one}", "bigint"] for one in range(190)]]] for at in range(40)]
    members = evolve([], [["id", "bigint"], *objects])
    assert [name for name, kind in members if kind != "null"] == ["id", *(f"o{at}" for at in range(26))]
    more = evolve(members, [["o0", ["struct", [[f"n{one}", "bigint"] for one in range(9)]]], ["x", "string"]])
    assert len(dict(more)["o0"][1]) == 199
    inner = ["struct", [[f"a{one}", "double"] for one in range(9)]]
    full = evolve(more, [["o1", ["struct", [[f"n{one}", inner] for one in range(9)]]]])
    assert dict(full)["o1"] == dict(more)["o1"]
    assert columns(evolve(full, [])) == columns(full)


def test_an_object_with_a_thousand_leaves_is_text() -> None:
    parts = [
        infer({"a": {f"m{at}{one}": {f"x{inner}": 1 for inner in range(99)} for one in range(6)}}) for at in (1, 2)
    ]
    assert dict(merge_all(parts[:1])[1])["a"][0] == "struct"
    assert dict(merge_all(parts)[1])["a"] == "json"
