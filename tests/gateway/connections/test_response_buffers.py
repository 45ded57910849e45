"""Responses that clients have not read yet: the limits and what counts towards them. The test sets the time."""

from types import SimpleNamespace

import pytest

from gateway.connections.response_buffers import COUNTED_BYTES, REFRESH_S, ResponseBuffers, ResponseLimits
from gateway.http.problems import Problem
from tests.gateway.requests import request_of

MIB = 2**20
LIMITS = ResponseLimits(bytes_max=4 * MIB, connection_bytes_max=3 * MIB)


class Connection(SimpleNamespace):
    """The server's view of a connection."""

    __hash__ = object.__hash__


class Node:
    def __init__(self):
        self.now = 1000.0
        self.answers = ResponseBuffers(LIMITS, lambda: self.now)

    def give(self, connection, size_bytes, **options):
        request = request_of(connection=connection)
        self.answers.count(request, size_bytes, **options)
        self.answers.end_reservation(request)
        connection.unsent_bytes += size_bytes


@pytest.fixture
def node():
    return Node()


def connection():
    return Connection(unsent_bytes=0)


def test_what_is_taken_counts_no_longer(node):
    one = connection()
    node.give(one, MIB)
    assert node.answers.size_bytes == MIB
    one.unsent_bytes = 0
    assert node.answers.size_bytes == 0
    assert repr(node.answers) == "ResponseBuffers(connections=0, size_bytes=0)"


def test_small_responses_are_not_counted_nor_those_without_a_body(node):
    node.give(connection(), COUNTED_BYTES - 1)
    node.answers.count(request_of(connection=connection(), method="HEAD"), MIB)
    assert not node.answers.connections


def test_a_connection_that_reads_too_little_gets_429(node):
    one = connection()
    node.give(one, 10 * MIB)
    with pytest.raises(Problem) as raised:
        node.give(one, MIB)
    assert raised.value.code == "too_many_requests"
    node.give(one, MIB, may_refuse=False)
    one.unsent_bytes = 0
    node.now += REFRESH_S
    node.give(one, MIB)
    assert node.answers.refused == 1


def test_all_connections_together_are_bounded_and_room_comes_back(node):
    clients = [connection() for _ in range(2)]
    for one in clients:
        node.give(one, 2 * MIB)
    with pytest.raises(Problem) as raised:
        node.give(connection(), MIB)
    assert raised.value.code == "overloaded"
    for one in clients:
        one.unsent_bytes = 0
    node.now += REFRESH_S
    node.give(connection(), MIB)


def test_clients_that_read_at_once_are_never_refused(node):
    """What was taken since the last sum counted until the next one: 503 for clients that read as fast as they got."""
    one = connection()
    for _ in range(100):
        node.give(one, MIB)
        one.unsent_bytes = 0
    assert node.answers.refused == 0


def test_a_promise_counts_until_it_is_kept_or_taken_back(node):
    one, request = connection(), None
    request = request_of(connection=one)
    node.answers.count(request, 2 * MIB)
    assert node.answers.size_bytes == 2 * MIB
    node.answers.count(request, MIB)
    assert node.answers.size_bytes == MIB, "it was compressed"
    with pytest.raises(Problem):
        node.give(one, 2 * MIB + 1)
    node.answers.cancel_reservation(request)
    assert node.answers.size_bytes == 0
