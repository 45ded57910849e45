"""The address of a client behind proxies that are trusted, and behind those that are not."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.access.proxies import Proxies
from gateway.http.problems import Problem
from tests.gateway.requests import request_of

PROXIES = Proxies(["10.0.0.0/8", "2001:db8:1::/48"])


def found(peer: str, *headers: tuple[str, str], proxies: Proxies = PROXIES) -> str:
    connection = SimpleNamespace(client=peer, known_caller=None, listener=None, tls=None, use_owner=str)
    request = request_of(CIMultiDict(headers), connection=connection)
    try:
        return str(proxies.address_of(request))
    except Problem as problem:
        return problem.code


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        ([], "10.1.1.1"),
        ([("X-Forwarded-For", "192.0.2.1")], "192.0.2.1"),
        ([("X-Forwarded-For", "203.0.113.9, 192.0.2.1")], "192.0.2.1"),
        ([("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-For", "192.0.2.1, 10.9.9.9")], "192.0.2.1"),
        ([("X-Forwarded-For", "10.9.9.9, 10.8.8.8")], "10.9.9.9"),
        ([("X-Forwarded-For", "192.0.2.1:4711")], "192.0.2.1"),
        ([("X-Forwarded-For", "::ffff:192.0.2.1")], "192.0.2.1"),
        ([("X-Forwarded-For", "2001:db8::7")], "2001:db8::7"),
        ([("X-Forwarded-For", "nonsense, 192.0.2.1")], "192.0.2.1"),
        ([("X-Forwarded-For", "192.0.2.1, nonsense")], "invalid_header"),
        ([("X-Forwarded-For", "192.0.2.1, nonsense, 10.0.0.1")], "invalid_header"),
        ([("Forwarded", "for=192.0.2.1;proto=https")], "192.0.2.1"),
        ([("Forwarded", 'for=10.2.2.2, For="[2001:db8::7]:80";by=x, for=10.3.3.3')], "2001:db8::7"),
        ([("Forwarded", 'for="192.0.2.1, for=10.0.0.1"')], "invalid_header"),
        ([("Forwarded", "for=unknown")], "invalid_header"),
        ([("Forwarded", "for=192.0.2.1, proto=https")], "invalid_header"),
        ([("Forwarded", "for=192.0.2.1;for=192.0.2.2")], "invalid_header"),
        ([("Forwarded", "for=192.0.2.1"), ("X-Forwarded-For", "192.0.2.1")], "192.0.2.1"),
        ([("Forwarded", "for=10.0.0.9"), ("X-Forwarded-For", "192.0.2.1")], "invalid_header"),
    ],
)
def test_the_rightmost_address_that_is_no_proxy_is_the_clients(headers, address):
    assert found("10.1.1.1:99", *headers) == address


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded"])
def test_headers_of_a_stranger_count_for_nothing(name):
    assert found("192.0.2.5:9", (name, "for=10.0.0.1")) == "192.0.2.5"
    assert found("10.1.1.1:9", (name, "10.0.0.1"), proxies=Proxies()) == "10.1.1.1"


def test_a_proxy_of_ipv6_and_one_mapped_into_it():
    assert found("[2001:db8:1::5]:9", ("X-Forwarded-For", "192.0.2.1")) == "192.0.2.1"
    assert found("[::ffff:10.1.1.1]:9", ("X-Forwarded-For", "192.0.2.1")) == "192.0.2.1"


def test_a_word_that_is_no_network_is_refused():
    with pytest.raises(ValueError, match=r"10\.0\.0\.1/8"):
        Proxies(["10.0.0.1/8"])


@given(st.text(max_size=60), st.sampled_from(["X-Forwarded-For", "Forwarded"]))
def test_no_text_satisfies_by_being_unreadable(text, name):
    """Whatever stands left of what the proxy has noted, the client is what the proxy has noted."""
    noted = "192.0.2.1" if name == "X-Forwarded-For" else "for=192.0.2.1"
    quoted = text.count('"') % 2 or "\\" in text
    answer = found("10.1.1.1:9", (name, f"{text}, {noted}"))
    assert answer == "192.0.2.1" or (quoted and answer == "invalid_header")


def test_a_long_header_is_read_in_linear_time():
    text = 'for="' + '\\"' * 30_000
    assert found("10.1.1.1:9", ("Forwarded", text)) == "invalid_header"
