"""Doubles and decimals hold what they say, and nothing else."""

from __future__ import annotations

import json
from decimal import Decimal
from math import isfinite

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_ingest.decode.compiled_rows import CompiledRows
from spark_ingest.decode.json_columns import extra_array, payload_arrays
from spark_ingest.decode.json_rows import JsonRows
from spark_ingest.types.json_types import Members, Type, infer_text
from spark_ingest.types.numbers import are_rounded, common_decimal, has_long_number, is_double
from tests.codecs import needs_compiled

HELD = (
    *("0", "-0", "1", "0.1", "1.10", "0.30000000000000004", "9007199254740992", "1152921504606846976", "1e22", "0.0"),
    *("1.7976931348623157e308", "5e-324", "2.2250738585072014e-308", "123456789012345.0", "0.10000000000000000555"),
)
ROUNDED = (
    *("9007199254740993", "1152921504606846977", "0.1000000000000000001", "9007199254740.993", "12345678901234567.5"),
    *("12345678901234567890.1234567890", "1e-400", "1e400", "4e-324", "9007199254740993.0", "1234567890123456789e0"),
)


@pytest.mark.parametrize("text", HELD)
def test_a_double_holds_what_it_gives_back(text: str) -> None:
    assert is_double(text)


@pytest.mark.parametrize("text", ROUNDED)
def test_a_double_does_not_hold_what_it_rounds(text: str) -> None:
    assert not is_double(text)
    assert has_long_number(text.encode())


KINDS: list[tuple[Type, str]] = [
    ("double", "%s"),
    (["array", "double"], "[1, %s ,2]"),
    (["struct", [["x", "double"]]], '{"x":%s}'),
    (["array", ["struct", [["x", ["array", "double"]]]]], '[{"x":[%s]},{}]'),
]


def column_and_extra(kind: Type, value: bytes) -> tuple[object, str | None]:
    members: Members = [["a", kind]]
    found = CompiledRows(members).arrays(pa.array([value], pa.binary()))
    if found is not None:
        return found[0][0].as_py(), None
    rows = JsonRows(members).decode([b'{"a":null}', value])
    assert not rows.bad
    return payload_arrays(members, rows.structs)[0][1].as_py(), extra_array(rows)[1].as_py()


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_double_rounds_is_in_extra_at_any_depth(kind: tuple[Type, str]) -> None:
    for text in ROUNDED:
        value = kind[1] % text
        assert column_and_extra(kind[0], b'{"a":%s}' % value.encode()) == (None, f'{{"a":{value}}}')
    for text in HELD:
        found, extra = column_and_extra(kind[0], b'{"a":%s}' % (kind[1] % text).encode())
        assert (found is None, extra) == (False, None)


NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@given(NUMBERS | st.floats(allow_nan=False, allow_infinity=False).map(repr))
@example("1234567890123456e-5")
@example("0.0000001e-303")
@example("123456789012345e-320")
def test_a_search_for_long_numbers_misses_none_that_a_double_rounds(number: str) -> None:
    is_whole = number.lstrip("-").isdecimal()
    for value in (
        b'{"a":%s}',
        b'{"a":[1,%s, 2.5]}',
        b'{"b":"text e-9", "a": %s }',
        b'{"b":"12/2026/11/25/26/2026","t":1700000000000,"a":%s}',
        b"%s",
    ):
        text = value % number.encode()
        if not is_double(number):
            assert has_long_number(text)
        if not is_whole and isfinite(float(number)):
            assert are_rounded([text]) == (not is_double(number))


@needs_compiled
@given(NUMBERS | st.floats(allow_nan=False, allow_infinity=False).map(repr))
@example("0.1000000000000000055")
def test_the_codec_takes_no_number_that_a_double_rounds(number: str) -> None:
    found = CompiledRows([["x", "double"]]).arrays(pa.array([b'{"x":%s}' % number.encode()]))
    if found is not None:
        assert is_double(number)
        assert found[0][0].as_py() == float(number)


@needs_compiled
def test_the_codec_takes_doubles_with_many_digits() -> None:
    """Else each block with such a number would be read ten times slower."""
    texts = [json.dumps({"x": (at * 7919 % 1000) / 997 + at / 3}).encode() for at in range(2000)]
    assert CompiledRows([["x", "double"]]).arrays(pa.array(texts)) is not None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[9007199254740993, 1.5]", ["array", "decimal"]),
        ("[9007199254740993, 1]", ["array", "long"]),
        ("[1, 1.5]", ["array", "double"]),
        ("[12345678901234567890.123456789, 1.5, 1]", ["array", "decimal"]),
        ("0.12345678901234567890123", "json"),
        ('["x", 9007199254740993]', ["array", "json"]),
    ],
)
def test_numbers_that_no_double_holds_are_decimals(text: str, kind: Type) -> None:
    assert infer_text(text.encode()) == kind


def test_the_common_decimal_holds_both_or_there_is_none() -> None:
    assert common_decimal("decimal(10,2)", "decimal(30,10)") == "decimal(30,10)"
    assert common_decimal("decimal(19,0)", "decimal(9,8)") == "decimal(27,8)"
    assert common_decimal("decimal(38,0)", "decimal") is None


def test_decimals_are_exact_within_arrays_and_structs() -> None:
    members: Members = [["a", ["array", ["struct", [["x", "decimal(20,2)"]]]]]]
    rows = JsonRows(members).decode([b'{"a":[{"x":123456789012345678.25},{},null,{"x":null}]}', b'{"a":[{"x":0.125}]}'])
    [found] = payload_arrays(members, rows.structs)
    assert found.to_pylist() == [[{"x": Decimal("123456789012345678.25")}, {"x": None}, None, {"x": None}], None]
    assert extra_array(rows).to_pylist() == [None, '{"a":[{"x":0.125}]}']


def test_times_that_a_timestamp_cuts_are_in_extra() -> None:
    members: Members = [["t", "timestamp"]]
    cut = b'{"t":"2024-01-01T00:00:00.1234561Z"}'
    rows = JsonRows(members).decode([b'{"t":"2024-01-01T00:00:00.123456000Z"}', cut])
    assert [one is not None for one in payload_arrays(members, rows.structs)[0].to_pylist()] == [True, False]
    assert extra_array(rows).to_pylist() == [None, cut.decode()]
