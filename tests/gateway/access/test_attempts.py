"""Wrong credentials by address: how many, for how long, and of how many addresses."""

from ipaddress import ip_address
from types import SimpleNamespace

import pytest

from engine.runtime.clock import SystemClock
from gateway.access.access import Access
from gateway.access.attempts import ADDRESSES_MAX, Attempts, TooManyAttempts
from gateway.access.tokens_file import Right, make_token, parse_tokens
from gateway.http.problems import Problem
from gateway.http.rights import AUTHENTICATED
from tests.gateway.access.test_access import NOW
from tests.gateway.requests import request_of

ONE, OTHER = ip_address("192.0.2.1"), ip_address("192.0.2.2")
READER = make_token("reader", {Right.READ: [""]}, NOW, lambda size: bytes(range(size)))


def failed_until_limited(attempts: Attempts, address, now: float) -> int:
    for count in range(10_000):
        try:
            attempts.check(address, now)
        except TooManyAttempts:
            return count
        attempts.fail(address, now)
    raise AssertionError("never limited")


def test_an_address_has_its_burst_and_then_its_rate():
    attempts = Attempts(10, 100)
    assert failed_until_limited(attempts, ONE, 0.0) == 100
    assert failed_until_limited(attempts, ONE, 0.099) == 0
    assert failed_until_limited(attempts, ONE, 0.101) == 1
    assert failed_until_limited(attempts, ONE, 1.101) == 10
    assert failed_until_limited(attempts, ONE, 3600.0) == 100
    assert failed_until_limited(attempts, OTHER, 3600.0) == 100, "each address has its own"


def test_the_answer_says_when_the_next_attempt_is_looked_at():
    attempts = Attempts(1, 2)
    for _ in range(4):  # two of them while others were under way
        attempts.fail(ONE, 0.0)
    with pytest.raises(TooManyAttempts) as refusal:
        attempts.check(ONE, 0.5)
    assert (refusal.value.code, refusal.value.headers) == ("too_many_requests", {"Retry-After": "3"})
    attempts.check(ONE, 3.001)


def test_a_network_of_ipv6_counts_as_one_and_no_address_as_one():
    attempts = Attempts(10, 1)
    attempts.fail(ip_address("2001:db8:0:1::1"), 0.0)
    with pytest.raises(TooManyAttempts):
        attempts.check(ip_address("2001:db8:0:1:ffff::9"), 0.0)
    attempts.check(ip_address("2001:db8:0:2::1"), 0.0)
    attempts.check(None, 0.0)
    attempts.fail(None, 0.0)
    with pytest.raises(TooManyAttempts):
        attempts.check(None, 0.0)


def test_the_number_of_addresses_is_bounded_and_the_last_failures_stay():
    attempts = Attempts(1, 1)
    for number in range(3 * ADDRESSES_MAX):
        attempts.fail(ip_address(number), 0.0)
    assert attempts.addresses == ADDRESSES_MAX
    attempts.check(ip_address(0), 0.0)
    with pytest.raises(TooManyAttempts):
        attempts.check(ip_address(3 * ADDRESSES_MAX - 1), 0.0)
    attempts.fail(ONE, 10.0)
    assert attempts.addresses == 1, "what has its attempts again is forgotten"


@pytest.fixture
def connection():
    return SimpleNamespace(client="192.0.2.1:1", known_caller=None, listener=None, tls=None, use_owner=str)


def asked(access: Access, connection, authorization: str | None) -> str:
    headers = {} if authorization is None else {"Authorization": authorization}
    request = request_of(headers, need=AUTHENTICATED, connection=connection)
    try:
        access.check(request)
    except Problem as problem:
        return problem.code
    return request.caller.principal


def access_of(attempts: Attempts) -> Access:
    return Access(SystemClock(), parse_tokens(READER.entry), attempts=attempts)


def test_a_known_connection_goes_on_and_a_good_token_waits_as_a_wrong_one_does(connection):
    access = access_of(Attempts(1, 3))
    good = f"Bearer {READER.text}"
    assert asked(access, connection, good) == "token:reader"
    others = SimpleNamespace(client="192.0.2.1:2", known_caller=None, listener=None, tls=None, use_owner=str)
    wrong = ("Bearer x", "Basic eDp5", f"Bearer {READER.text[:-1]}")
    assert [asked(access, others, one) for one in wrong] == ["unauthorized"] * 3
    assert asked(access, others, "Bearer y") == "too_many_requests"
    assert asked(access, others, good) == "too_many_requests", "nothing was computed for it"
    assert asked(access, connection, good) == "token:reader"
    elsewhere = SimpleNamespace(client="192.0.2.2:1", known_caller=None, listener=None, tls=None, use_owner=str)
    assert asked(access, elsewhere, good) == "token:reader", "no principal is locked"


def test_a_good_token_costs_no_attempt_and_none_at_all_is_no_attempt(connection):
    attempts = Attempts(1, 1)
    access = access_of(attempts)
    for _ in range(10):
        assert asked(access, connection, None) == "unauthorized"
        connection.known_caller = None
        assert asked(access, connection, f"Bearer {READER.text}") == "token:reader"
    assert (attempts.refused, attempts.limited) == (0, 0)


def test_a_connection_that_was_good_is_looked_at_once_after_the_rules_have_changed(connection):
    access = access_of(Attempts(1, 1))
    good = f"Bearer {READER.text}"
    assert asked(access, connection, good) == "token:reader"
    others = SimpleNamespace(client="192.0.2.1:2", known_caller=None, listener=None, tls=None, use_owner=str)
    assert [asked(access, others, "Bearer x") for _ in range(2)] == ["unauthorized", "too_many_requests"]
    access.use_tokens(parse_tokens(READER.entry))
    assert asked(access, connection, good) == "token:reader"
    access.use_tokens(parse_tokens(""))
    assert [asked(access, connection, good) for _ in range(2)] == ["unauthorized", "too_many_requests"]
