"""Limits on JSON values: the same results as a simple scan of the characters, for brackets and numbers at any
position.
"""

from __future__ import annotations

import json
import sys
from itertools import accumulate
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http import json_limits
from gateway.http.json_limits import JsonLimits, check_value, check_values
from gateway.http.problems import Problem

LIMITS = JsonLimits(depth_max=5, digits_max=4)


def walked(text: bytes) -> tuple[int | None, int | None]:
    """Return the positions of the first bracket that is nested too deeply, and of the first number that is too
    long.
    """
    deep = number = None
    depth = run = 0
    in_string = is_escaped = False
    for at, byte in enumerate(text):
        character = chr(byte)
        if in_string:
            in_string = is_escaped or character != '"'
            is_escaped = character == "\\" and not is_escaped
            continue
        in_string = character == '"'
        depth += (character in "[{") - (character in "]}")
        if depth > LIMITS.depth_max and deep is None:
            deep = at
        run = run + 1 if character.isdecimal() or (run and character in ".eE+-") else 0
        if run > LIMITS.digits_max and number is None:
            number = at - LIMITS.digits_max
    return deep, number


texts = st.text(alphabet='ab[]{}"\\1234567890', max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**7), 10**7) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=30,
)


@given(values, st.integers(0, 9))
def test_the_first_byte_beyond_a_limit_is_found(value: object, wrapped: int) -> None:
    text = b"[" * wrapped + json.dumps(value).encode() + b"]" * wrapped
    deep, number = walked(text)
    expected = deep if deep is not None else number
    if expected is None:
        check_value(text, LIMITS, 7)
        return
    with pytest.raises(Problem) as refused:
        check_value(text, LIMITS, 7)
    assert refused.value.code == "json_too_complex"
    assert refused.value.members["byte"] == expected
    assert refused.value.members["record"] == 7


def test_of_several_values_the_one_beyond_a_limit_is_named() -> None:
    check_values([b"1", b"[[[[[1]]]]]"], LIMITS)
    with pytest.raises(Problem, match="record 1: byte 5 is nested more than 5 levels deep"):
        check_values([b"1", b"[[[[[[1]]]]]]", b"12345"], LIMITS)
    with pytest.raises(Problem, match="record 2: the number at byte 1 of its value has more than 4 digits"):
        check_values([b"1", b"[[[[[1]]]]]", b"-12.45"], LIMITS)


@given(st.lists(values, min_size=2, max_size=7), st.integers(0, 9))
def test_many_values_are_refused_as_each_of_them_is(several: list[object], wrapped: int) -> None:
    """They are checked together."""
    texts = [json.dumps(value).encode() for value in several]
    texts[-1] = b"[" * wrapped + texts[-1] + b"]" * wrapped
    places = [walked(text) for text in texts]
    bad = next((at for at, found in enumerate(places) if found != (None, None)), None)
    with mock.patch.object(json_limits, "_TOGETHER", 3):
        if bad is None:
            check_values(texts, LIMITS)
            return
        with pytest.raises(Problem) as refused:
            check_values(texts, LIMITS)
    deep, number = places[bad]
    assert refused.value.members["record"] == bad
    assert refused.value.members["byte"] == (number if deep is None else deep)


def test_many_plain_values_are_checked_together() -> None:
    plain = [b'{"name":"%s"}' % (b"x" * 300)] * 500
    with mock.patch.object(json_limits, "check_value", side_effect=AssertionError("a value was looked at alone")):
        check_values(plain, json_limits.DEFAULT_LIMITS)


def test_brackets_in_strings_neither_open_nor_close_a_level() -> None:
    check_value(b'["[[[[[[[[", "{{{{{{"]', LIMITS, 0)
    with pytest.raises(Problem):
        check_value(b'[["]]]]",[["]]",[["]]]\\"]]"]]]]]]', LIMITS, 0)


@given(st.text(alphabet="[]", max_size=100))
def test_levels_counted_eight_brackets_at_a_time_are_those_counted_one_by_one(brackets: str) -> None:
    one_by_one = max(accumulate((1 if bracket == "[" else -1 for bracket in brackets), initial=0))
    assert json_limits._levels(brackets.encode()) == one_by_one


def test_the_passes_over_a_value_do_not_grow_with_its_depth() -> None:
    """The event loop is blocked meanwhile."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "c_call"

    value, before = b"[%b]" % b",".join([b"[" * 127 + b"]" * 127] * 8), sys.getprofile()
    sys.setprofile(count)
    try:
        check_value(value, json_limits.DEFAULT_LIMITS, 0)
    finally:
        sys.setprofile(before)
    assert calls < 50
