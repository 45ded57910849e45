"""Query strings are read strictly: what is not known or not allowed is told, never ignored."""

from types import SimpleNamespace
from urllib.parse import quote

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.context import HTTP
from gateway.http.problems import Problem
from gateway.http.query import Number, Text, Word, path_partition, read_query
from gateway.settings import NodeSettings
from tests.gateway.refusals import refusal_of

RULES = {"n": Number(7, -1, 100), "w": Word("a", ("a", "b")), "t": Text(None, 5)}


def read(query, rules=RULES):
    app = web.Application()
    app[HTTP] = SimpleNamespace(query_value_chars_max=NodeSettings().query_value_chars_max)
    return read_query(make_mocked_request("GET", f"/x{query}", app=app), rules)


def refused(query, rules=RULES):
    with pytest.raises(Problem) as problem:
        read(query, rules)
    return problem.value.code, problem.value.members.get("parameter")


def test_what_is_not_given_has_its_default():
    assert read("") == read("?") == {"n": 7, "w": "a", "t": None}


def test_what_is_given_is_read():
    assert read("?n=-1&w=b&t=x%20%C3%A9") == {"n": -1, "w": "b", "t": "x é"}
    assert read("?t=") == {"n": 7, "w": "a", "t": ""}
    assert read("?n=0099")["n"] == 99
    assert read("?t=%25ff")["t"] == "%ff"


@pytest.mark.parametrize(
    "text",
    ["101", "-2", "", "1.0", "1e1", "0x1", "+1", "--1", "1_0", "٣", "²", " 1", "1 ", "9" * 30, "-", "NaN", "true"],
)
def test_what_is_no_number_within_bounds_is_refused(text):

    assert refused(f"?n={quote(text)}") == ("invalid_query", "n")


@pytest.mark.parametrize("text", ["%ff", "%C3", "a%ED%A0%80b"])
def test_bytes_that_are_not_utf8_are_refused_and_not_replaced(text):
    """A key that is changed in silence is another key."""
    assert refused(f"?t={text}") == ("invalid_query", None)


def test_other_refusals():
    assert refused("?w=c") == ("invalid_query", "w")
    assert refused("?w=") == ("invalid_query", "w")
    assert refused("?t=123456") == ("invalid_query", "t")
    assert refused("?n=1&n=1") == ("invalid_query", "n")
    assert refused("?N=1") == ("unknown_query", "N")
    assert refused("?n=1&x") == ("unknown_query", "x")
    assert refused("?x=1", {}) == ("unknown_query", "x")


@given(st.integers(-(10**25), 10**25))
def test_a_number_is_taken_exactly_within_its_bounds(number):
    rule = Number(None, -(2**63), 2**63 - 1)
    if rule.minimum <= number <= rule.maximum:
        assert rule.parse("n", str(number)) == number
    else:
        assert refusal_of(rule.parse, "n", str(number)).code == "invalid_query"


@given(st.text(max_size=12))
def test_a_partition_in_the_path_is_plain_digits(text):
    request = make_mocked_request("GET", "/x", match_info={"partition": text})
    if text.isascii() and text.isdigit() and len(text) <= 10:
        assert path_partition(request) == int(text)
    else:
        assert refusal_of(path_partition, request).code == "unknown_partition"
