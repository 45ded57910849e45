"""Query strings are read strictly: an unknown or disallowed parameter is an error, never ignored."""

from types import SimpleNamespace
from typing import Annotated
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from gateway.http.problems import Problem
from gateway.http.query import NoQuery, Number, Text, Word, path_partition, read_query
from gateway.settings import NodeSettings
from tests.gateway.refusals import refusal_of
from tests.gateway.requests import request_of


class Query(Struct, frozen=True):
    n: Annotated[int, Number(-1, 100)] = 7
    w: Annotated[str, Word(("a", "b"))] = "a"
    t: Annotated[str | None, Text(5)] = None
    from_: Annotated[str | None, Word(("start",))] = None


def read(query, shape=Query):
    http = SimpleNamespace(query_value_chars_max=NodeSettings().query_value_chars_max)
    return read_query(request_of(query=query.removeprefix("?"), http=http), shape)


def refused(query, shape=Query):
    with pytest.raises(Problem) as problem:
        read(query, shape)
    return problem.value.code, problem.value.members.get("parameter")


def test_what_is_not_given_has_its_default():
    assert read("") == read("?") == Query(7, "a", None, None)


def test_what_is_given_is_read():
    assert read("?n=-1&w=b&t=x%20%C3%A9") == Query(-1, "b", "x é")
    assert read("?t=") == Query(t="")
    assert read("?n=0099").n == 99
    assert read("?t=%25ff").t == "%ff"
    assert read("?from=start").from_ == "start"


@pytest.mark.parametrize(
    "text",
    ["101", "-2", "", "1.0", "1e1", "0x1", "+1", "--1", "1_0", "٣", "²", " 1", "1 ", "9" * 30, "-", "NaN", "true"],
)
def test_what_is_no_number_within_bounds_is_refused(text):

    assert refused(f"?n={quote(text)}") == ("invalid_query", "n")


@pytest.mark.parametrize("text", ["%ff", "%C3", "a%ED%A0%80b"])
def test_bytes_that_are_not_utf8_are_refused_and_not_replaced(text):
    """A silently changed key is another key."""
    assert refused(f"?t={text}") == ("invalid_query", None)


def test_other_errors():
    assert refused("?w=c") == ("invalid_query", "w")
    assert refused("?w=") == ("invalid_query", "w")
    assert refused("?t=123456") == ("invalid_query", "t")
    assert refused("?n=1&n=1") == ("invalid_query", "n")
    assert refused("?N=1") == ("unknown_query", "N")
    assert refused("?n=1&x") == ("unknown_query", "x")
    assert refused("?x=1", NoQuery) == ("unknown_query", "x")


@given(st.integers(-(10**25), 10**25))
def test_a_number_is_taken_exactly_within_its_bounds(number):
    rule = Number(-(2**63), 2**63 - 1)
    if rule.minimum <= number <= rule.maximum:
        assert rule.parse("n", str(number)) == number
    else:
        assert refusal_of(rule.parse, "n", str(number)).code == "invalid_query"


@given(st.text(max_size=12))
def test_a_partition_in_the_path_is_plain_digits(text):
    request = request_of(names={"partition": text})
    if text.isascii() and text.isdigit() and len(text) <= 10:
        assert path_partition(request) == int(text)
    else:
        assert refusal_of(path_partition, request).code == "unknown_partition"
