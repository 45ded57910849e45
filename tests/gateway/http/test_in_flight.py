"""Bytes of bodies in flight: bounded in total and per connection, and released with any answer."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.problems import Problem
from gateway.http.request import COUNTED_BY_CONNECTION_BYTES, RequestBodies
from tests.gateway.requests import request_of

LARGE = COUNTED_BY_CONNECTION_BYTES


def of_client(client):
    return request_of(connection=SimpleNamespace(client=client))


def refusal(in_flight, request, size):
    with pytest.raises(Problem) as problem:
        in_flight.hold(request, size)
    return problem.value.code


def test_the_total_is_bounded_and_room_comes_back_with_the_answer():
    in_flight, first, second = RequestBodies(100, 2**40, None, None), of_client("a"), of_client("b")
    in_flight.hold(first, 60)
    assert refusal(in_flight, second, 41) == "overloaded"
    in_flight.release(second)
    in_flight.hold(second, 40)
    in_flight.release(first)
    in_flight.hold(second, 60)
    assert in_flight.held_bytes == 100


def test_one_connection_cannot_take_all():
    in_flight = RequestBodies(2**40, 2 * LARGE, None, None)
    one, other = of_client("a"), of_client("a")
    in_flight.hold(one, LARGE)
    in_flight.hold(other, LARGE)
    assert refusal(in_flight, of_client("a"), LARGE) == "too_many_requests"
    in_flight.hold(of_client("b"), LARGE)
    in_flight.release(one)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.sampled_from([1, LARGE, 3 * LARGE]), max_size=3)), max_size=8)
)
def test_nothing_is_left_when_all_are_answered(requests):
    in_flight = RequestBodies(4 * LARGE, 3 * LARGE, None, None)
    open_requests = []
    for remote, pieces in requests:
        request = of_client(remote)
        open_requests.append(request)
        for piece in pieces:
            try:
                in_flight.hold(request, piece)
            except Problem:
                break
    for request in open_requests:
        in_flight.release(request)
    assert in_flight.held_bytes == 0
    assert repr(in_flight) == "RequestBodies(held_bytes=0, large_connections=0)"
