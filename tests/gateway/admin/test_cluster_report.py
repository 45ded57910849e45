"""The node's reports about the cluster, in answers and as metrics: partitions, nodes, problems."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from replication.cluster.values import LEVEL_MAX
from tests.gateway.metrics.test_metrics import samples
from tests.gateway.several_nodes import Cluster, LedByWord, several_nodes
from tests.scenarios.conformity import assert_problem


@pytest.fixture
async def cluster(tmp_path) -> AsyncIterator[Cluster]:
    async with several_nodes(tmp_path) as cluster:
        yield cluster


async def test_a_partition_without_a_leader_is_described_by_what_is_known(cluster):
    topics = await cluster.create("t", partitions=2, leader=2)
    cluster.world.lead(1, None, in_sync=[2])
    led, unled = (await topics[1].describe())["partitions"]
    assert (led["leader"], led["replicas"], led["log_end"], led["under_replicated"]) == (2, [1, 2], 0, False)
    assert led["leader_url"] == cluster.members[2].node.peers.url
    assert (unled["leader"], unled["leader_url"], unled["in_sync"], unled["leader_epoch"]) == (None, None, [2], 2)
    assert unled["offline"]
    assert unled["high_watermark"] is None


async def test_the_cluster_lists_its_nodes_and_unhealthy_partitions(cluster):
    topics = await cluster.create("t", partitions=3, leader=2)
    cluster.world.lead(0, 1, in_sync=[1])
    cluster.world.lead(1, None, in_sync=[1])
    for topic in topics.values():
        reported = (await topic.gateway.send("GET", "/v1/cluster")).json
        assert [(one["node_id"], one["alive"], one["leading"], one["partitions"]) for one in reported["nodes"]] == [
            (1, True, 1, 3),
            (2, True, 1, 3),
        ]
        assert [one["under_replicated"] for one in reported["nodes"]] == [0, 2]
        assert reported["offline_partitions"] == [{"topic": "t", "partitions": [1]}]
        assert reported["under_min_in_sync"] == reported["under_replicated"] == [{"topic": "t", "partitions": [0, 1]}]


async def test_the_metrics_count_unhealthy_partitions(cluster, monkeypatch):
    topics = await cluster.create("t", partitions=4, leader=2)
    cluster.world.lead(0, 1, in_sync=[1])
    cluster.world.lead(1, None, in_sync=[1])
    monkeypatch.setattr(LedByWord, "lag", property(lambda led: {"2": led.partition.number, "3": 1}))
    reported = [samples((await topics[n].gateway.send("GET", "/metrics")).body.decode()) for n in (1, 2)]
    for name, first, second in (
        ("cluster_nodes", 2, 2),
        ("leaderless_partitions", 1, 1),
        ("leader_partitions", 1, 2),
        ("under_replicated_partitions", 1, 0),
        ("under_min_isr_partitions", 1, 0),
        ("replica_lag_records", 3, 3),
        ("unclean_leader_elections_total", 0, 0),
    ):
        assert [one[f"penstock_{name}",] for one in reported] == [first, second], name
    before = reported[0]["penstock_leader_elections_total",]
    cluster.world.lead(0, 2)
    after = samples((await topics[1].gateway.send("GET", "/metrics")).body.decode())
    assert after["penstock_leader_elections_total",] == before + 1
    assert after["penstock_leader_partitions",] == 0


async def test_a_node_that_is_gone_is_listed_for_its_replicas(cluster):
    topics = await cluster.create("t", leader=2)
    view = cluster.world.view
    view.put_nodes({1: view.nodes[1]})
    first, second = (await topics[1].gateway.send("GET", "/v1/cluster")).json["nodes"]
    assert (first["alive"], second["alive"], second["url"], second["partitions"]) == (True, False, None, 1)
    assert_problem(await topics[1].post_lines("1", timeout_ms=50), "no_leader")


async def test_the_feature_level_of_the_cluster_is_shown_beside_what_nodes_serve(tmp_path):
    async with several_nodes(tmp_path) as cluster:
        topics = await cluster.create("orders", partitions=1, leader=1)
        cluster.world.view.feature_level = 1
        gateway = topics[1].gateway
        shown = (await gateway.send("GET", "/v1/cluster")).json
        assert (shown["feature_level"], shown["nodes"][0]["feature_level_max"]) == (1, 1)
        text = (await gateway.send("GET", "/metrics")).body.decode()
        levels = dict(re.findall(r'penstock_feature_level{kind="(\w+)"} ([0-9.]+)', text))
        assert levels == {"cluster": "1.0", "node": f"{LEVEL_MAX}.0", "nodes": "1.0"}
