"""Operations on a cluster over HTTP, through a real link to the agent of this node; three nodes share a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replication.cluster.view import reassignments
from tests.gateway.operated import Operated, operated_cluster
from tests.scenarios.conformity import assert_problem


@pytest.fixture
async def operated(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Operated]:
    async with operated_cluster(tmp_path, request) as made:
        yield made


async def test_a_move_is_begun_shown_and_called_off(operated):
    (before,) = await operated.create("orders", 1, 1)
    other = next(n for n in (1, 2, 3) if n not in before)
    wish = {"topic": "orders", "partitions": {"0": [other]}}
    row = {"topic": "orders", "partition": 0, "replicas": [other], "adding": [other], "removing": list(before)}
    row |= {"in_sync": list(before), "size_bytes": None, "left_bytes": {}}  # its leader is unreachable
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
        ({"topic": "orders", "partitions": {"0": [1], "00": [2]}}, 404, "unknown_partition"),
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


async def test_too_few_nodes_for_now_is_no_refusal_for_good(operated):
    """Over HTTP, with Retry-After: a node has left and may return."""
    await operated.create("orders", 2, 1)
    view = operated.cluster.agents[1].view
    await operated.cluster.end(3)
    await operated.cluster.until(lambda: 3 not in view.nodes)
    body, headers = b'{"replication_factor":3}', {"Content-Type": "application/json"}
    answer = await operated.gateway.send("PATCH", "/v1/topics/orders", body, headers)
    assert_problem(answer, "too_few_nodes", retryable=True, no_side_effects=True)
    assert answer.status == 503
    assert "absent: 3" in answer.json["detail"]
    assert int(answer.headers["Retry-After"]) > 0
    assert reassignments(view) == []


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


@pytest.mark.parametrize("node_id", ["7", "x", "0", "99999999999999999999", "00000000001" + 5000 * "9"])
async def test_a_node_that_is_not_there_is_refused(operated, node_id):
    status, problem = await operated.send("POST", f"/v1/cluster/nodes/{node_id}/drain", {"drained": True})
    assert (status, problem["code"], problem["setting"]) == (400, "invalid_config", "node_id")


async def test_a_plan_counts_the_bytes_on_the_disks_and_starts_on_request(operated):
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
