"""A node over HTTP whose supervisor has a real agent behind a real link; two more agents share its store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.directory.topics import TopicRecord
from gateway.admin.operation_calls import Operation
from gateway.links.link_client import LinkClient, listen
from gateway.routing.peers import Owner, Peers
from node.cluster.operations import ClusterOperator
from replication.errors import NoLeader
from tests.replication.clusters import Cluster, states_of
from tests.replication.coordinations import embedded
from tests.scenarios.gateways import InProcess, in_process


class Leaderless(Peers):
    """Leaders are known but unreachable; these tests do not need them."""

    def owner(self, topic_id: str, partition: int) -> Owner:
        raise NoLeader("no node leads")


@dataclass
class Operated:
    cluster: Cluster
    gateway: InProcess

    async def send(self, method: str, path: str, document: Any = None) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"} if document is not None else {}
        body = b"" if document is None else orjson.dumps(document)
        answer = await self.gateway.send(method, path, body, headers)
        return answer.status, orjson.loads(answer.body) if answer.body else None

    async def create(self, name: str, partitions: int, replicas: int) -> list[tuple[int, ...]]:
        topic, _ = await self.cluster.agents[1].create_topic(name, partitions, replicas, {})
        await self.gateway.node.shard.open_topic(TopicRecord(name, topic.topic_id, partitions, replicas, {}, 1000))
        return [state.replicas for state in states_of(self.cluster.agents[1], topic)]

    async def fill(self, name: str, *numbers: int) -> None:
        """Fill the partitions as their leader."""
        for number in numbers:
            path = f"/v1/topics/{name}/partitions/{number}/records?acks=1"
            assert (await self.gateway.send("POST", path, b"x" * 100_000)).status == 200


@asynccontextmanager
async def operated_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Operated]:
    at_once = {"node_id": 1, "leader_wait_ms": 0}
    async with embedded(tmp_path, request) as coordination, AsyncExitStack() as stack:
        cluster = Cluster(coordination)
        (one, _, _) = await cluster.start_all(1, 2, 3)
        path = str(tmp_path / "supervisor")
        server = await listen(path, ClusterOperator(one).handlers())
        supervisor = LinkClient(path, {})
        supervisor.connect()
        await cluster.until(lambda: is_up(supervisor))

        async def operate(operation: Operation) -> Any:
            result, _ = await supervisor.link().call("operate", operation, timeout_s=10)
            return result

        peers = Leaderless(cluster=one.view, node_id=1)
        gateway = await stack.enter_async_context(in_process(tmp_path, peers, **at_once))
        object.__setattr__(gateway.node.server.admin, "operate", operate)
        yield Operated(cluster, gateway)
        supervisor.close()
        server.close()
        await cluster.stop()


def is_up(caller: LinkClient) -> bool:
    try:
        return caller.link().is_up
    except Exception:
        return False
