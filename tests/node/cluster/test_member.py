"""The supervisor's handling of shards' messages, with a real agent: a link carries plain values only."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from engine.runtime.clock import SystemClock
from gateway.links.link import Link
from gateway.links.link_client import LinkClient, listen
from gateway.settings import NodeSettings
from node.cluster.member import ClusterMember
from replication.cluster.agent import ClusterAgent
from replication.cluster.feature_level import LEVEL_MAX, raise_level
from replication.cluster.membership import OwnNode
from tests.replication.cluster.test_feature_level import set_level
from tests.replication.clusters import Cluster, embedded_cluster


@pytest.fixture
async def cluster(tmp_path, request) -> AsyncIterator[Cluster]:
    async with embedded_cluster(tmp_path, request) as made:
        yield made


class NoProcesses:
    """Has no processes to notify, but for a link that keeps what it is notified of."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, object]] = []

    async def call_shards(self, change: str, arguments: object) -> None: ...

    def shard_links(self) -> list["NoProcesses"]:
        return [self]

    def begin(self, change: str, arguments: object) -> None:
        self.changes.append((change, arguments))


@asynccontextmanager
async def supervised(tmp_path: Path, agent: ClusterAgent, shards: int = 1) -> AsyncIterator[tuple[ClusterMember, Link]]:
    """The supervisor's part of a node, and a link to it like a shard's."""
    settings = NodeSettings(coordination="zookeeper://127.0.0.1:1/never-asked", shards=shards)
    with ThreadPoolExecutor(1) as executor:
        member = ClusterMember(settings, OwnNode(1), [], executor, SystemClock(), Random(1), lambda: "id")
        member._agent, member._processes = agent, NoProcesses()
        server = await listen(str(tmp_path / "supervisor"), member.handlers())
        supervisor = LinkClient(str(tmp_path / "supervisor"))
        yield member, await supervisor.wait_connected_within(60)
        supervisor.close()
        server.close()


async def test_a_shard_reports_a_partition_whose_disk_failed(tmp_path, cluster):
    one, two = await cluster.start_all(1, 2)
    topic, _ = await one.create_topic("orders", 2, 2, {})
    async with supervised(tmp_path, one) as (_, link):
        await link.call("partition_offline", (topic.topic_id, 1), timeout_s=10.0)
        await cluster.until(lambda: two.view.nodes[1].offline == {f"{topic.topic_id}/1"})


async def test_the_session_ends_when_no_shard_takes_appends_any_more(tmp_path, cluster):
    one, two = await cluster.start_all(1, 2)
    async with supervised(tmp_path, one, shards=2) as (member, link):
        await link.call("left", 0, timeout_s=10.0)
        await link.call("left", 1, timeout_s=10.0)
        assert one.member is not None, "a process that was stopped from outside is restarted"
        await member.leave()
        first = link.begin("left", 0)
        await two.session.get("/fence")
        assert 1 in two.view.nodes
        assert not first.done()
        await link.call("left", 1, timeout_s=10.0)
        await first
        await cluster.until(lambda: 1 not in two.view.nodes)


async def test_a_raise_of_the_feature_level_is_seen_by_the_node_and_its_shards(tmp_path, cluster):
    one, two = await cluster.start_all(1, 2)
    await set_level(one.session, 1)
    await cluster.until(lambda: two.view.feature_level == 1)
    async with supervised(tmp_path, two) as (member, link):
        member.on_identity(two._identity)
        two.listener = member
        await raise_level(one.session, LEVEL_MAX)
        await cluster.until(lambda: two.view.feature_level == LEVEL_MAX)
        fields, _ = await link.call("cluster", None, timeout_s=10.0)
        assert fields["level"] == two.view.feature_level == LEVEL_MAX
        assert member._processes.changes[-1] == ("identity", (member._secrets, LEVEL_MAX))
