"""Several nodes: which one is used, which one is avoided, and which ones receive a token."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from penstock import Client, ConnectionFailed, ProblemError
from penstock.transport import api
from penstock.transport.nodes import NodeList, bearer, parse_addresses, reason_of
from tests.penstock.conftest import QUICK, UNREACHABLE
from tests.penstock.fake_node import FakeNode, answering, problem, reset

URLS = ["http://a:1", "http://b:1", "http://c:1"]


def urls_of(nodes: NodeList, now: float) -> list[str]:
    return [node.url for node in nodes.order(now)]


def test_a_node_is_kept_while_it_answers_and_left_with_a_backoff_that_doubles() -> None:
    nodes = NodeList(URLS, backoff_ms=100, backoff_ms_max=350)
    assert urls_of(nodes, 0) == URLS
    a, b, _ = nodes.order(0)
    nodes.on_failure(a, 0)
    assert urls_of(nodes, 0.05) == ["http://b:1", "http://c:1", "http://a:1"]
    nodes.on_answer(b, 0.05)
    assert urls_of(nodes, 9) == ["http://b:1", "http://c:1", "http://a:1"]  # available again, but not needed
    assert nodes.changes == 1
    for down_s in (0.2, 0.35, 0.35):
        nodes.on_failure(a, 10)
        assert a.down_until == pytest.approx(10 + down_s)
        a.down_until = 0


def test_failures_at_once_are_one_outage_and_a_late_answer_does_not_end_it() -> None:
    nodes = NodeList(URLS, backoff_ms=100, backoff_ms_max=10_000)
    a = nodes.order(0)[0]
    for _ in range(10):
        nodes.on_failure(a, 5)
    assert a.down_until == pytest.approx(5.1)
    nodes.on_answer(a, 5.05)
    assert urls_of(nodes, 5.05)[0] != a.url


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.floats(0, 1))))
def test_every_node_is_tried_whatever_happened(events: list[tuple[int, bool, float]]) -> None:
    nodes, now = NodeList(URLS, 50, 2_000), 0.0
    known = nodes.order(0)
    for rank, is_answer, later_s in events:
        now += later_s
        (nodes.on_answer if is_answer else nodes.on_failure)(known[rank], now)
        assert sorted(urls_of(nodes, now)) == URLS
        ready = [node.down_until <= now for node in nodes.order(now)]
        assert ready == sorted(ready, reverse=True)  # an unavailable node never comes before an available one


def test_addresses_are_checked_and_named_once() -> None:
    assert parse_addresses(["a:1", "http://a:1/", "https://b"]) == ["http://a:1", "https://b:443"]
    assert parse_addresses("a:1") == ["http://a:1"]
    assert parse_addresses(["[::1]:8080", "http://[2001:DB8::7]/x/", "localhost", "node-1.example.org:1"]) == [
        "http://[::1]:8080",
        "http://[2001:db8::7]:80/x",
        "http://localhost:80",
        "http://node-1.example.org:1",
    ]
    for wrong in ([], ["ftp://a"], ["::1"], ["http://::1:8080"], ["[::1"], ["[fe80::1%eth0]:80"], ["a:x"], ["a:70000"]):
        with pytest.raises(ValueError, match="address"):
            parse_addresses(wrong)


@contextlib.asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[FakeNode, FakeNode, TestServer, TestServer]]:
    """Two nodes of one cluster, which share their topics."""
    first, second = FakeNode(), FakeNode()
    second.topics = first.topics
    servers = [TestServer(node.application()) for node in (first, second)]
    for server in servers:
        await server.start_server()
    try:
        yield first, second, *servers
    finally:
        for server in servers:
            await server.close()


def both(*servers: TestServer) -> list[str]:
    return [str(server.make_url("/")) for server in servers]


async def test_a_node_that_is_not_there_is_passed_over_even_by_a_call_that_is_made_once() -> None:
    async with two_nodes() as (first, _, server, _other):
        first.add_topic("t")
        absent = UNREACHABLE
        async with Client([absent, *both(server)], options=QUICK) as client:
            assert (await client.describe_topic("t"))["topic"] == "t"
            assert (client.statistics().node_changes, client.url) == (1, both(server)[0].rstrip("/"))
            await client.describe_topic("t")
            assert client.statistics().requests == 3  # the absent node was tried once
        async with Client([absent, absent], options=QUICK) as client:
            with pytest.raises(ConnectionFailed) as caught:
                await client.list_topics()
            assert caught.value.no_side_effects


async def test_producing_and_consuming_continue_at_another_node() -> None:
    async with two_nodes() as (first, second, server, other):
        first.add_topic("t")
        options = replace(QUICK, linger_ms=0, batch_bytes=30)
        async with Client(both(server, other), options=options) as client:
            consumer = client.consume("t")
            async with client.producer() as producer:
                await producer.send_many("t", range(100))
                await producer.flush()
                await server.close()
                await producer.send_many("t", range(100, 200))
            got: list[int] = []
            async with asyncio.timeout(60), consumer:
                while len(got) < 200:
                    got += [record.json() for record in await consumer.poll()]
        assert got == list(range(200))
        assert first.seen
        assert second.seen


async def test_a_node_that_is_about_to_stop_is_left() -> None:
    async with two_nodes() as (first, second, server, other):
        first.add_topic("t")
        first.fail(answering(lambda: problem(503, "draining", retryable=True)))
        options = replace(QUICK, backoff_ms=1_000, backoff_ms_max=1_000)
        async with Client(both(server, other), options=options) as client:
            with pytest.raises(ProblemError):
                await client.call(api.produce("t", b"1", api.NDJSON_TYPE, partition=0, query={"acks": "1"}))
            await client.call(api.produce("t", b"1", api.NDJSON_TYPE, partition=0, query={"acks": "1"}))
            assert client.url == both(other)[0].rstrip("/")
        assert (len(first.seen), len(second.seen)) == (1, 1)


async def test_a_request_that_a_node_may_have_seen_is_not_repeated_by_itself() -> None:
    async with two_nodes() as (first, second, server, other):
        first.add_topic("t")
        first.fail(reset)
        options = replace(QUICK, retry_ambiguous=False)
        async with Client(both(server, other), options=options) as client:
            with pytest.raises(ConnectionFailed) as caught:
                await client.post_records("t", b"1", partition=0)
            assert not caught.value.no_side_effects
            assert not second.seen
            await client.post_records("t", b"1", partition=0)  # the caller decides about a retry: the other node
        assert len(second.seen) == 1


async def test_a_token_goes_to_the_nodes_given_and_not_where_they_redirect_to() -> None:
    async with two_nodes() as (first, second, server, other):
        elsewhere = both(other)[0]
        first.fail(
            answering(lambda: web.Response(status=307, headers={"Location": elsewhere})), method="GET", path="/v1"
        )
        async with Client(both(server), token="secret", options=QUICK) as client:
            with pytest.raises(ProblemError, match="HTTP status 307"):
                await client.list_topics()
        assert first.seen_headers[0]["Authorization"] == "Bearer secret"
        assert not second.seen


@pytest.mark.parametrize("token", ["secret\n", "secret\r", "se cret", "sécret", "\x00", "secret\x7f"])
def test_a_token_that_no_header_can_carry_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ValueError, match="at position") as caught:
        Client(UNREACHABLE, token=token)
    assert "cret" not in str(caught.value)
    assert bearer("a-Z_0.9~+/=") == "Bearer a-Z_0.9~+/="


def test_the_reason_of_a_failed_connection_is_words_without_numbers() -> None:
    unknown_name = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert reason_of(unknown_name) == "name or service not known"
    assert reason_of(ConnectionRefusedError(111, "x")) == "connection refused"
    assert reason_of(OSError("odd")) == "odd"
    other = ssl.SSLError(1, "[SSL: TLSV1_ALERT_PROTOCOL_VERSION] x")
    other.reason = "TLSV1_ALERT_PROTOCOL_VERSION"
    assert reason_of(other) == "tlsv1 alert protocol version"


async def test_an_https_address_of_a_node_without_tls_is_named_as_the_mistake() -> None:
    async with two_nodes() as (_, _, server, _), Client(f"https://127.0.0.1:{server.port}", options=QUICK) as client:
        with pytest.raises(ConnectionFailed, match="does not answer in TLS; is it an http:// address"):
            await client.list_topics()
