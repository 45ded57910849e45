"""Requests directly to the leader of a partition: which node receives them, and which nodes receive a token."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from aiohttp import web

from penstock import Client
from penstock.admin.api import describe_topic
from penstock.transport import api
from penstock.transport.leaders import LeaderCache
from penstock.transport.nodes import NodeList
from tests.penstock.conftest import QUICK
from tests.penstock.fake_node import problem
from tests.penstock.transport.test_nodes import both, two_nodes

PATH = "/v1/topics/t/partitions/0/records"


def test_an_address_is_taken_only_as_far_as_the_caller_allows() -> None:
    given = ["http://a:8080", "https://b"]
    urls = ["http://a:9001/", "https://b:9001", "http://b:9001", "http://c:8080", "http://me:pw@a:1", "ftp://a"]
    taken = {}
    for policy in ("given_hosts", "any", "off"):
        taken[policy] = []
        for url in urls:
            leaders = LeaderCache(given, policy)
            leaders.on_leader_header(PATH, url)
            taken[policy].append(leaders.url_of(PATH, 0.0))
    assert taken["given_hosts"] == ["http://a:9001", "https://b:9001", None, None, None, None]
    assert taken["any"] == ["http://a:9001", "https://b:9001", "http://b:9001", "http://c:8080", None, None]
    assert taken["off"] == [None] * 6


def test_what_is_known_is_bounded() -> None:
    leaders = LeaderCache(["http://a"], "any")
    for number in range(25_000):
        leaders.on_leader_header(f"/v1/topics/t/partitions/{number}/records", "http://a:1")
    assert repr(leaders) == "<LeaderCache 5000>"


def test_an_address_that_cannot_be_reached_is_left_out_for_a_while_that_doubles() -> None:
    leaders, url = LeaderCache(["http://a"], "any"), "http://a:1"

    def is_tried(now: float) -> bool:
        leaders.on_leader_header(PATH, url)  # the next answer names it again
        return leaders.url_of(PATH, now) == url

    leaders.on_unreachable(PATH, url, now=0.0)
    assert leaders.url_of(PATH, 10.0) is None, "its node may lead no more"
    leaders.on_unreachable(PATH, url, now=0.5)  # of a request at the same time
    assert [is_tried(0.9), is_tried(1.0)] == [False, True]
    leaders.on_unreachable(PATH, url, now=1.0)
    assert [is_tried(2.9), is_tried(3.0)] == [False, True]
    now = 3.0
    for _ in range(2_000):
        leaders.on_unreachable(PATH, url, now)
        now += 1_000.0
    assert [is_tried(now - 800), is_tried(now - 700)] == [False, True]
    leaders.on_answer(url)
    leaders.on_unreachable(PATH, url, now)
    assert is_tried(now + 1.0)


def telling(node: object, url: str):
    """Return a handler's answer with `Penstock-Leader`, as a node that has forwarded the request."""

    async def act(request: web.Request) -> web.Response:
        response = await node._fetch(request) if request.method == "GET" else await node._produce(request)
        response.headers["Penstock-Leader"] = url
        return response

    return act


async def test_a_client_uses_a_known_leader_and_falls_back_when_that_fails() -> None:
    async with two_nodes() as (first, second, server, other):
        first.add_topic("t")
        async with Client(both(server), options=QUICK, token="secret") as client:
            first.fail(telling(first, both(other)[0]), method="GET")
            fetch = api.fetch("t", 0, api.JSON_TYPE, {"offset": 0, "wait_ms": 10, "max_bytes": 100})
            await client.call(fetch)
            assert not second.seen
            await client.call(fetch)
            await client.post_records("t", b"1\n", partition=0)
            assert [(method, path) for method, path, *_ in second.seen] == [("GET", PATH), ("POST", PATH)]
            assert second.seen_headers[0]["Authorization"] == "Bearer secret"
            await client.call(describe_topic("t"))
            assert len(second.seen) == 2  # only requests for that partition
            await other.close()
            assert (await client.call(fetch))["next_offset"] == 1
            assert len(first.seen) == 3


async def test_an_address_behind_nat_is_tried_once_and_then_left_out() -> None:
    async with two_nodes() as (first, _, server, other):
        first.add_topic("t")
        unreachable = both(other)[0]
        await other.close()
        for _ in range(3):
            first.fail(telling(first, unreachable))
        async with Client(both(server), options=QUICK) as client:
            for _ in range(3):
                await client.post_records("t", b"1\n", partition=0)
            assert client.statistics().requests == 4
        assert len([path for _, path, *_ in first.seen if path == PATH]) == 3


async def test_another_program_at_the_address_of_a_leader_is_left_for_the_nodes() -> None:
    """As through a tunnel that brings one port only."""
    async with two_nodes() as (first, second, server, other):
        first.add_topic("t")
        first.fail(telling(first, both(other)[0]))
        async with Client(both(server), options=QUICK, token="secret") as client:
            await client.post_records("t", b"1\n", partition=0)
            second.names_requests = False
            second.fail(lambda _: asyncio.sleep(0, web.Response(status=404)))
            await client.post_records("t", b"2\n", partition=0)
            await client.post_records("t", b"3\n", partition=0)
            assert len(second.seen) == 1
        assert len([path for _, path, *_ in first.seen if path == PATH]) == 3


async def test_a_leader_that_knows_no_more_is_left_for_the_nodes() -> None:
    async with two_nodes() as (first, second, server, other):
        first.add_topic("t")
        async with Client(both(server), options=QUICK) as client:
            first.fail(telling(first, both(other)[0]))
            await client.post_records("t", b"1\n", partition=0)
            second.fail(lambda _: asyncio.sleep(0, problem(503, "no_leader", retryable=True)))
            await client.post_records("t", b"2\n", partition=0)
            assert [path for method, path, *_ in second.seen if method == "POST"] == [PATH]
            assert len([path for _, path, *_ in first.seen if path == PATH]) == 2


@pytest.mark.parametrize("code", ["not_leader", "no_leader", "draining"])
async def test_a_node_that_knows_no_leader_is_left_for_another(code: str) -> None:
    async with two_nodes() as (first, second, server, other):
        first.add_topic("t")
        first.fail(lambda _: asyncio.sleep(0, problem(503, code, retryable=True)))
        async with Client(both(server, other), options=QUICK) as client:
            await client.post_records("t", b"1\n", partition=0)
            assert len(second.seen) == 1
            assert client.statistics().node_changes == 1


async def test_a_consumer_reports_the_newest_leader_epoch_that_it_knows() -> None:
    async with two_nodes() as (first, _, server, _other):
        partition = first.add_topic("t")[0]
        seen = []

        async def act(request: web.Request) -> web.Response:
            seen.append(request.headers.get("Penstock-Leader-Epoch"))
            response = await first._fetch(request)
            response.headers["Penstock-Leader-Epoch"] = "7"
            return response

        first.fail(act, method="GET", path="/partitions/0/records")
        async with Client(both(server), options=replace(QUICK, fetch_wait_ms=10)) as client:
            await client.post_records("t", b"1\n2\n", partition=0)
            consumer = client.consume("t", follow=False, fetch_bytes_max=1)
            async with asyncio.timeout(60), consumer:
                assert [record.value async for record in consumer] == [b"1", b"2"]
            fetches = [
                headers.get("Penstock-Leader-Epoch")
                for (method, path, *_), headers in zip(first.seen, first.seen_headers, strict=True)
                if method == "GET" and path == PATH
            ]
        assert seen == [None]
        assert fetches[0] is None
        assert set(fetches[1:]) <= {"7"}
        assert len(partition.records) == 2


def test_a_list_of_nodes_takes_no_address_that_was_not_given() -> None:
    assert [node.url for node in NodeList(["http://a:1"], 1, 1).order(0)] == ["http://a:1"]
