"""The members of a sample: what the compiled codec reads with known members has no others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.decode.type_counts import Mixed
from spark_ingest.protocol import sample
from spark_ingest.protocol.sample import counted
from spark_ingest.types.json_types import Members, infer, merge_all
from tests.codecs import needs_compiled, plainly
from tests.spark_ingest.hostile_json import hostile_values
from tests.spark_ingest.json_values import OBJECTS

pytestmark = needs_compiled


def members_of(values: list[bytes]) -> tuple[Members, list[Mixed]]:
    mixed: list[Mixed] = []
    counts = counted((value, at, []) for at, value in enumerate(values))
    return [[name, one.chosen((name,), 10.0, mixed)] for name, one in counts.items()], mixed


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_BLOCK_VALUES", 1)


@given(st.lists(OBJECTS, max_size=8))
def test_members_are_those_of_every_value(objects: list[Any]) -> None:
    values = [json.dumps(one).encode() for one in objects]
    assert members_of(values) == plainly(members_of, values)


@pytest.mark.parametrize(
    "values",
    [
        [b'{"a":0.5}', b'{"a":1}', b'{"a":12345678901234567890}'],
        [b'{"a":0.5}', b'{"a":9223372036854775807}', b'{"a":-9223372036854775809}'],
        [b'{"a":0.5}', b'{"a":1e400}'],
        [b'{"a":0.5}', b'{"a":1}', b'{"a":9007199254740993}', b'{"a":2}', b'{"a":0.5}'],
        [*[b'{"a":1}'] * 30, b'{"a":0.5}', b'{"a":1}', b'{"a":9007199254740993}', b'{"a":2}'],
        [*[b'{"a":{"b":9007199254740993}}'] * 30, b'{"a":{"b":1}}', b'{"a":{"b":0.5}}', b'{"a":{"b":1}}'],
        [b'{"a":1}', b'{"a":-0}', b'{"a":-0.0}'],
        [b'{"a":null}', b'{"a":null,"b":null}', b'{"a":{}}'],
        [b'{"a":{"b":1}}', b'{"a":{"c":2}}', b'{"a":{"b":1,"b":"x"}}'],
        [b"{}", b"[]", b"x", b'{"a":"\\ud800"}', b'{"a":"x"}'],
    ],
)
def test_unusual_values_are_inferred(values: list[bytes]) -> None:
    assert members_of(values) == plainly(members_of, values)


def test_hostile_values_have_the_members_of_the_twin() -> None:
    values = hostile_values(2000, seed=3)
    assert members_of(values) == plainly(members_of, values)


def types(*texts: str) -> tuple[object, list[Mixed]]:
    members, mixed = members_of([b'{"a":%s}' % text.encode() for text in texts])
    return members[0][1], mixed


ID = "1152921504606846977"


@pytest.mark.parametrize(
    ("texts", "kind", "others"),
    [
        (["1"] * 19 + ['"x"'], "bigint", 1),
        (['"x"'] * 19 + ["1"], "string", 1),
        (["1"] * 18 + ['"x"'] * 2, "json", 2),
        ([ID] * 19 + ["1.5"], "bigint", 1),
        (["1.5"] * 19 + [ID], "double", 1),
        ([ID] * 5 + ["1.5"] * 5, "decimal", 5),
        (["1.5"] * 19 + ["12345678901234567890.123456789"], "double", 1),
        (["1"] * 19 + ["1.5"], "double", 1),
        (["1"] * 9 + ["1.5"] * 9, "double", 0),
        (["1"] * 19 + ["18446744073709551616"], "bigint", 1),
        (["18446744073709551616"] * 20, "json", 0),
        (["true"] * 19 + ["{}"], "boolean", 1),
        (['{"b":1}'] * 19 + ['{"b":"x"}'], ["struct", [["b", "bigint"]]], 1),
        (['{"b":1}'] * 19 + ['"x"'], ["struct", [["b", "bigint"]]], 1),
        (["[1]"] * 19 + ['["x"]'], ["array", "json"], 0),
        (["[1]"] * 19 + ["1"], ["array", "bigint"], 1),
        (["null"] * 30 + ["1", '"x"'], "json", 1),
    ],
)
def test_the_type_of_most_values_wins_below_the_limit(texts: list[str], kind: object, others: int) -> None:
    is_pooled = kind == "double" and texts[0] == "1"  # the codec reads integers behind a fraction as doubles
    for order in [texts] if is_pooled else [texts, texts[::-1]]:
        found, mixed = types(*order)
        assert found == kind
        assert [one.others for one in mixed] == ([others] if others else [])
        for one in mixed:
            assert order[int(str(one.place))] not in ("null", max(order, key=order.count)) or others * 2 == len(order)


@given(st.lists(OBJECTS, max_size=8))
def test_values_of_one_type_have_the_type_that_holds_them_all(objects: list[Any]) -> None:
    members, mixed = members_of([json.dumps(one).encode() for one in objects])
    merged = merge_all(map(infer, objects))
    if not mixed:
        assert members == (merged[1] if merged != "null" else [])
