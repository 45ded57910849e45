"""Links to other nodes follow the registrations: opened before they are needed, closed when the registration ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest

from gateway.links.addresses import reserve_port
from gateway.links.internal_link import Credentials
from gateway.links.internal_listener import InternalListener
from gateway.links.link import LinkDown, LinkLost, handler
from gateway.links.process_links import ProcessLinks
from replication.cluster.values import NodeInfo

OURS = Credentials("cluster", "secret")
OWN = 1


async def no_fetches(_: bytes) -> list[bytes]:
    raise AssertionError


class OtherNode:
    """One shard of another node."""

    def __init__(self, port: int) -> None:
        self.listener = InternalListener(
            OURS, {"name": handler(Any, self.name), "stay": handler(Any, self.stay)}, no_fetches
        )
        self.port = port
        self.url = f"http://127.0.0.1:{self.port}"

    async def name(self, _: Any, __: bytes) -> tuple[int, bytes]:
        return self.port, b""

    async def stay(self, _: Any, __: bytes) -> tuple[None, bytes]:
        await asyncio.Event().wait()
        return None, b""


@pytest.fixture
async def shards() -> AsyncIterator[list[OtherNode]]:
    with ExitStack() as ports:
        shards = [OtherNode(ports.enter_context(reserve_port("127.0.0.1", 0))) for _ in range(3)]
        for shard in shards:
            await shard.listener.open("127.0.0.1", shard.port)
        yield shards
        for shard in shards:
            await shard.listener.close()


@pytest.fixture
async def links() -> AsyncIterator[ProcessLinks]:
    links = ProcessLinks(credentials=OURS)
    yield links
    links.close()


def register(links: ProcessLinks, *nodes: NodeInfo) -> None:
    links.follow(nodes)


def node(node_id: int, broker_epoch: int, *shards: OtherNode) -> NodeInfo:
    return NodeInfo(node_id, broker_epoch, f"http://{node_id}", internal_urls=tuple(shard.url for shard in shards))


async def up(links: ProcessLinks, count: int) -> None:
    async with asyncio.timeout(60):
        while len(links.links()) != count:
            await asyncio.sleep(0.01)


async def test_a_link_to_every_shard_of_every_other_node_is_made_before_anybody_asks(
    links: ProcessLinks, shards: list[OtherNode]
) -> None:
    register(links, node(2, 7, shards[0], shards[1]), node(3, 8, shards[2]))
    await up(links, 3)
    answers = [await links.link(which).call("name", None, timeout_s=60) for which in ((2, 0), (2, 1), (3, 0))]
    assert [port for port, _ in answers] == [shard.port for shard in shards]


async def test_a_call_to_a_node_that_is_declared_dead_ends_at_once(
    links: ProcessLinks, shards: list[OtherNode]
) -> None:
    register(links, node(2, 7, shards[0]), node(3, 8, shards[2]))
    await up(links, 2)
    dead, alive = links.link((2, 0)).begin("stay", None), links.link((3, 0))
    register(links, node(3, 8, shards[2]))
    with pytest.raises(LinkLost):
        await dead
    with pytest.raises(LinkDown):
        links.link((2, 0))
    assert links.link((3, 0)) is alive, "the others are left alone"


async def test_a_node_that_was_born_again_elsewhere_is_reached_there(
    links: ProcessLinks, shards: list[OtherNode]
) -> None:
    register(links, node(2, 7, shards[0]))
    await up(links, 1)
    register(links, node(2, 9, shards[1]))
    await up(links, 1)
    assert await links.link((2, 0)).call("name", None, timeout_s=60) == (shards[1].port, b"")
