"""Operations on a cluster over HTTP, through a real link to the agent of this node; three nodes share a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.topics import TopicRecord
from gateway.cluster_operator import ClusterOperator
from gateway.link import Caller, listen
from replication.moves import reassignments
from tests.gateway.several_nodes import NodesOfTest, World
from tests.replication.clusters import Cluster, states_of
from tests.replication.coordinations import embedded
from tests.scenarios.gateways import InProcess, in_process

Send = Callable[..., Awaitable[tuple[int, Any]]]


class Unreachable(NodesOfTest):
    """Leaders are known and cannot be asked: what is tried here needs none."""

    def leader_of(self, topic_id: str, number: int) -> None:
        return None


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
        """As if this node led the partitions."""
        nodes, self.gateway.node.peers.nodes = self.gateway.node.peers.nodes, None
        for number in numbers:
            path = f"/v1/topics/{name}/partitions/{number}/records?acks=1"
            assert (await self.gateway.send("POST", path, b"x" * 100_000)).status == 200
        self.gateway.node.peers.nodes = nodes


@pytest.fixture
async def operated(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Operated]:
    at_once = {"node_id": 1, "leader_wait_ms": 0}
    async with embedded(tmp_path, request) as coordination, in_process(tmp_path, **at_once) as gateway:
        cluster = Cluster(coordination)
        (one, _, _) = await cluster.start_all(1, 2, 3)
        path = str(tmp_path / "supervisor")
        server = await listen(path, ClusterOperator(one).handlers())
        supervisor = Caller(path, {})
        supervisor.connect()
        await cluster.until(lambda: is_up(supervisor))

        async def operate(name: str, *arguments: Any) -> Any:
            result, _ = await supervisor.link().call("operate", (name, *arguments), timeout_s=10)
            return result

        world = World()
        world.view = one.view
        gateway.node.peers.nodes = Unreachable(world, 1)
        gateway.node.operate = operate
        yield Operated(cluster, gateway)
        supervisor.close()
        server.close()
        await cluster.stop()


def is_up(caller: Caller) -> bool:
    try:
        return caller.link().is_up
    except Exception:
        return False


async def test_a_move_is_begun_shown_and_called_off(operated):
    (before,) = await operated.create("orders", 1, 1)
    other = next(n for n in (1, 2, 3) if n not in before)
    wish = {"topic": "orders", "partitions": {"0": [other]}}
    row = {"topic": "orders", "partition": 0, "replicas": [other], "adding": [other], "removing": list(before)}
    row["in_sync"] = list(before)
    assert await operated.send("POST", "/v1/cluster/reassignments", wish) == (202, {"reassignments": [row]})
    assert await operated.send("GET", "/v1/cluster/reassignments") == (200, {"reassignments": [row]})
    assert await operated.send("DELETE", "/v1/cluster/reassignments/orders/0") == (204, None)
    assert await operated.send("GET", "/v1/cluster/reassignments") == (200, {"reassignments": []})


@pytest.mark.parametrize(
    ("wish", "status", "code"),
    [
        ({"topic": "orders", "partitions": {"0": [9]}}, 400, "invalid_config"),
        ({"topic": "orders", "partitions": {"0": [1, 2]}}, 400, "invalid_config"),
        ({"topic": "orders", "partitions": {"0": []}}, 400, "invalid_body"),
        ({"topic": "orders", "partitions": {"0": [2**40]}}, 400, "invalid_body"),
        ({"topic": "orders", "partitions": {}}, 400, "invalid_body"),
        ({"topic": "orders", "partitions": {"7": [1]}}, 404, "unknown_partition"),
        ({"topic": "orders", "partitions": {"x": [1]}}, 404, "unknown_partition"),
        ({"topic": "order", "partitions": {"0": [1]}}, 404, "unknown_topic"),
        ({"topic": "orders"}, 400, "invalid_body"),
    ],
)
async def test_a_wrong_move_is_refused_and_says_what_is_wrong(operated, wish, status, code):
    await operated.create("orders", 1, 1)
    found, problem = await operated.send("POST", "/v1/cluster/reassignments", wish)
    assert (found, problem["code"]) == (status, code)
    if code == "invalid_config":
        assert problem["setting"] == "replicas"
    assert reassignments(operated.cluster.agents[1].view) == []


async def test_the_replication_factor_is_changed_with_the_settings_that_it_allows(operated):
    await operated.create("orders", 2, 1)
    wish = {"replication_factor": 3}
    status, _ = await operated.send("PATCH", "/v1/topics/orders", wish)
    assert status == 200
    topic = await operated.cluster.agents[1].find_topic("orders")
    assert topic.replication_factor == 3
    assert len(reassignments(operated.cluster.agents[1].view)) == 2
    status, problem = await operated.send("PATCH", "/v1/topics/orders", {"replication_factor": 4})
    assert (status, problem["code"], problem["setting"]) == (400, "invalid_config", "replication_factor")
    status, problem = await operated.send("PATCH", "/v1/topics/orders", {})
    assert (status, problem["code"]) == (400, "invalid_body")


async def test_a_node_is_drained_and_taken_back(operated):
    await operated.create("orders", 3, 2)
    view = operated.cluster.agents[1].view
    path = "/v1/cluster/nodes/2/drain"
    assert await operated.send("POST", path, {"drained": True}) == (200, {"node_id": 2, "drained": True})
    await operated.cluster.until(lambda: view.drained == {2})
    await operated.cluster.until(lambda: all(found.state.leader.node_id != 2 for found in view.states.values()))
    assert await operated.send("POST", path, {"drained": False}) == (200, {"node_id": 2, "drained": False})
    await operated.cluster.until(lambda: not view.drained)


async def test_a_node_is_emptied_as_long_as_the_others_are_enough(operated):
    await operated.create("orders", 3, 2)
    count = sum(3 in found.state.replicas for found in operated.cluster.agents[1].view.states.values())
    path = "/v1/cluster/nodes/3/decommission"
    assert await operated.send("POST", path) == (202, {"node_id": 3, "moving": count})
    status, problem = await operated.send("POST", "/v1/cluster/nodes/2/decommission")
    assert (status, problem["code"]) == (400, "invalid_config")


@pytest.mark.parametrize("node_id", ["7", "x", "0", "99999999999999999999"])
async def test_a_node_that_is_not_there_is_refused(operated, node_id):
    status, problem = await operated.send("POST", f"/v1/cluster/nodes/{node_id}/drain", {"drained": True})
    assert (status, problem["code"], problem["setting"]) == (400, "invalid_config", "node_id")


async def test_a_plan_counts_the_bytes_on_the_disks_and_is_begun_when_told_to(operated):
    replicas = await operated.create("orders", 6, 1)
    assert replicas[0] == replicas[3], "two on one node"
    await operated.fill("orders", 0, 3)
    status, plan = await operated.send("POST", "/v1/cluster/balance", {"apply": False})
    assert status == 200
    assert plan["applied"] is False
    (move,) = plan["moves"]
    assert (move["topic"], move["from_node"]) == ("orders", *replicas[0])
    assert move["partition"] in (0, 3)
    assert move["size_bytes"] > 100_000
    assert reassignments(operated.cluster.agents[1].view) == []
    _, again = await operated.send("POST", "/v1/cluster/balance", {"apply": True})
    assert again == {**plan, "applied": True}
    (begun,) = reassignments(operated.cluster.agents[1].view)
    assert (begun.partition, list(begun.target)) == (move["partition"], move["replicas"])
