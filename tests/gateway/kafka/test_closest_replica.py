"""A consumer with a rack reads from a follower in it: the leader names it, and it answers what it has."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.pending import Pending
from gateway.kafka.apis import make_apis
from gateway.kafka.codec.messages import Message, Output, read_message, write_message
from gateway.kafka.context import make_context
from gateway.kafka.errors import Error
from gateway.kafka.requests import Client
from gateway.kafka.service import Service
from replication.cluster.values import NodeInfo
from replication.replica.acks import Acks
from tests.gateway.kafka.served import batch, fetch
from tests.gateway.several_nodes import Cluster, OneNode, several_nodes

LEADER, FOLLOWER = 2, 1
VERSION = 12


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    address = "127.0.0.1:9092"
    async with several_nodes(tmp_path, rack="rack 1", kafka_listen=address, kafka_advertised=address) as cluster:
        nodes = {
            number: NodeInfo(
                number, 1, one.node.peers.url, (), ("internal",), f"rack {number}", kafka=f"host{number}:9092"
            )
            for number, one in cluster.members.items()
        }
        cluster.world.view.put_nodes(nodes)
        await cluster.create("t", leader=FOLLOWER)
        for number in (FOLLOWER, LEADER):  # nothing is copied between these nodes
            cluster.world.lead(0, number)
            topic = cluster.members[number].node.shard.topic("t")
            await (
                cluster.members[number]
                .node.partitions.leader(topic, 0)
                .produce_all([(batch(b"a"), None, None)], Acks.ALL, 5000)[0]
            )
        yield cluster


async def ask(member: OneNode, offset: int, rack: str, **fields: Any) -> Message:
    """Returns the only partition of the answer to a fetch."""
    context = make_context(member.node.server)
    service, out = Service(context, make_apis(context)), Output()
    out.tail += struct.pack(">hhihB", 1, VERSION, 7, -1, 0)
    write_message("Fetch", VERSION, fetch("t", {0: offset}, rack=rack, **fields), out, is_request=True)
    request, handled = service.begin(memoryview(b"".join(out.finished())), Client("127.0.0.1:1"))
    if isinstance(handled, Coroutine | Pending):
        handled = await handled
    pieces = service.finish(request, handled)
    assert pieces is not None
    answer = read_message("Fetch", VERSION, memoryview(b"".join(pieces)), 9, is_request=False)
    return answer.responses[0].partitions[0]


async def test_the_leader_names_a_follower_in_the_rack_of_the_client(cluster: Cluster) -> None:
    row = await ask(cluster.members[LEADER], 0, "rack 1")
    assert (row.error_code, row.preferred_read_replica, bytes(row.records)) == (0, FOLLOWER, b"")
    own = await ask(cluster.members[LEADER], 0, "rack 2")
    assert (own.error_code, own.preferred_read_replica, len(own.records) > 0) == (0, -1, True)
    none = await ask(cluster.members[LEADER], 0, "")
    assert (none.preferred_read_replica, len(none.records) > 0) == (-1, True)
    cluster.world.lead(0, LEADER, in_sync=[LEADER])
    alone = await ask(cluster.members[LEADER], 0, "rack 1")
    assert (alone.preferred_read_replica, len(alone.records) > 0) == (-1, True)


async def test_a_follower_answers_clients_of_its_rack_and_never_says_out_of_range(cluster: Cluster) -> None:
    follower = cluster.members[FOLLOWER]
    row = await ask(follower, 0, "rack 1")
    assert (row.error_code, len(row.records) > 0, row.high_watermark) == (0, True, 1)
    assert (await ask(follower, 1, "rack 1", max_wait_ms=20)).error_code == 0
    assert (await ask(follower, 9, "rack 1")).error_code == Error.NOT_LEADER_OR_FOLLOWER
    other = await ask(follower, 0, "rack 2")
    assert other.error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert other.current_leader.leader_id == LEADER
    cluster.world.lead(0, LEADER, in_sync=[LEADER])
    assert (await ask(follower, 0, "rack 1")).error_code == Error.NOT_LEADER_OR_FOLLOWER
