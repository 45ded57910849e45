"""The members of a sample: what the compiled codec reads with known members has no others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.protocol import sample
from spark_ingest.protocol.sample import members_of
from tests.codecs import needs_compiled, plainly
from tests.spark_ingest.hostile_json import hostile_values
from tests.spark_ingest.json_values import OBJECTS

pytestmark = needs_compiled


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
