"""The supervisor's end of what shards tell it, with a real agent: a link carries plain values, whatever was meant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from engine.clock import SystemClock
from gateway.cluster_member import ClusterMember
from gateway.link import Caller, listen
from gateway.settings import NodeSettings
from replication.membership import OwnNode
from tests.replication.clusters import Cluster
from tests.replication.coordinations import embedded


@pytest.fixture
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    async with embedded(tmp_path, request) as coordination:
        made = Cluster(coordination)
        yield made
        await made.stop()


async def test_a_shard_whose_disk_failed_a_partition_is_heard(tmp_path, cluster):
    one, two = await cluster.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 2, 2, {})
    settings = NodeSettings(coordination="zookeeper://127.0.0.1:1/never-asked")
    own = OwnNode(1)
    with ThreadPoolExecutor(1) as executor:
        member = ClusterMember(settings, own, [], executor, SystemClock(), Random(1), lambda: "id")
        member._agent = one
        server = await listen(str(tmp_path / "supervisor"), member.handlers())
        supervisor = Caller(str(tmp_path / "supervisor"))
        link = await supervisor.connected(10.0)
        await link.call("partition_offline", (topic.topic_id, 1), timeout_s=10.0)
        await cluster.until(lambda: two.view.nodes[1].offline == {f"{topic.topic_id}/1"})
        supervisor.close()
        server.close()
