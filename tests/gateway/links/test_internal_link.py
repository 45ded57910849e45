"""Links between nodes: only members of the cluster get one, with the same functions as links between processes of a
node.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from engine.errors import StartRefused, UnknownTopic
from gateway.links import internal_link
from gateway.links.addresses import reserve_port
from gateway.links.internal_link import FETCH_PATH, LINK_PATH, PROTOCOL, Credentials, dial_internal
from gateway.links.internal_listener import InternalListener
from gateway.links.link import LinkLost, handler
from gateway.links.link_client import LinkClient, LinkRejected

OURS = Credentials("cluster-1", "a secret")
FOREIGN = [replace(OURS, secret="another"), replace(OURS, secret=""), replace(OURS, cluster_id="cluster-2")]


async def echo(arguments: Any, payload: bytes) -> tuple[Any, bytes]:
    return arguments, payload


async def refuse(arguments: Any, payload: bytes) -> tuple[Any, bytes]:
    raise UnknownTopic("there is no topic 't'")


async def stay(arguments: Any, payload: bytes) -> tuple[Any, bytes]:
    await asyncio.Event().wait()
    raise AssertionError


async def reversed_body(body: bytes) -> list[bytes]:
    """Reverse the body in pieces, as batches arrive."""
    return [body[:0:-1], body[:1]]


HANDLERS = {name: handler(Any, function) for name, function in (("echo", echo), ("refuse", refuse), ("stay", stay))}


class Node:
    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.listener = InternalListener(OURS, HANDLERS, reversed_body)

    def caller(self, credentials: Credentials = OURS) -> LinkClient:
        return LinkClient(self.url, dial=dial_internal(self.url, credentials))


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    with reserve_port("127.0.0.1", 0) as port:
        node = Node(port)
        await node.listener.open("127.0.0.1", node.port)
        yield node
        await node.listener.close()


@pytest.mark.parametrize("foreign", FOREIGN, ids=["wrong secret", "no secret", "another cluster"])
async def test_a_stranger_gets_no_link_and_that_is_said_once(
    node: Node, foreign: Credentials, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinkClient, "RETRY_S_MAX", 0.01)
    caller = node.caller(foreign)
    with caplog.at_level(logging.ERROR), pytest.raises(LinkLost):
        await caller.wait_connected_within(0.5)
    logged = [record for record in caplog.records if "rejected the connection" in record.message]
    assert len(logged) == 1
    assert OURS.secret not in caplog.text
    caller.close()


@pytest.mark.parametrize(("foreign", "status"), list(zip(FOREIGN, (401, 401, 403), strict=True)))
async def test_a_stranger_may_not_fetch(node: Node, foreign: Credentials, status: int) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        for path in (FETCH_PATH, LINK_PATH, "/elsewhere"):
            method = "POST" if path == FETCH_PATH else "GET"
            async with session.request(method, node.url + path, data=b"abc", headers=foreign.headers()) as answer:
                assert answer.status == status
        async with session.post(node.url + FETCH_PATH, data=b"abc", headers=OURS.headers()) as answer:
            assert (answer.status, await answer.read()) == (200, b"cba")


async def test_a_header_that_is_no_text_is_refused_like_any_other(node: Node) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(b"GET /internal/v1/link HTTP/1.1\r\nHost: x\r\nAuthorization: Penstock-Cluster \xff\xfe\r\n\r\n")
    assert b" 401 " in await reader.readline()
    writer.close()


async def test_another_version_of_the_link_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_link, "PROTOCOL", "penstock-link/0")
    with pytest.raises(LinkRejected, match="400"):
        await dial_internal(node.url, OURS)(lambda: pytest.fail("no link is to be made"))
    assert PROTOCOL != "penstock-link/0"


async def test_what_is_no_http_is_refused(node: Node) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.write(b"x" * 20_000), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(LinkRejected):
        await dial_internal(f"http://127.0.0.1:{port}", OURS)(lambda: pytest.fail("no link is to be made"))
    server.close()


async def test_what_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_link, "CONNECT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dial = dial_internal(f"http://127.0.0.1:{silent.getsockname()[1]}", OURS)
        with pytest.raises(TimeoutError):
            await dial(lambda: pytest.fail("no link is to be made"))


async def test_a_listener_that_closes_ends_its_calls_and_the_link_is_made_again_with_the_next(node: Node) -> None:
    caller = node.caller()
    call = (await caller.wait_connected_within(60)).begin("stay", None)
    await (await caller.wait_connected_within(60)).call("echo", 1, timeout_s=60)
    await node.listener.close()
    with pytest.raises(LinkLost):
        await call
    again = Node(node.port)
    await again.listener.open("127.0.0.1", again.port)
    assert await (await caller.wait_connected_within(60)).call("echo", 2, timeout_s=60) == (2, b"")
    caller.close()
    await again.listener.close()


async def test_a_port_that_is_taken_refuses_the_start(node: Node) -> None:
    with pytest.raises(StartRefused, match="for other nodes"):
        await Node(node.port).listener.open("127.0.0.1", node.port)


async def test_while_the_secret_rotates_both_are_accepted_and_the_first_is_sent(node: Node) -> None:
    credentials = node.listener._credentials = replace(OURS)
    credentials.use(["new", OURS.secret])
    for secret in ("new", OURS.secret):
        caller = node.caller(replace(OURS, secret=secret))
        assert await (await caller.wait_connected_within(5)).call("echo", 1, timeout_s=5) == (1, b"")
        caller.close()
    credentials.use(["new"])
    with pytest.raises(LinkRejected, match="401"):
        await dial_internal(node.url, OURS)(lambda: pytest.fail("no link is to be made"))
