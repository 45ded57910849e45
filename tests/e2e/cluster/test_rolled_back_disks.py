"""A node that comes back with an old copy of its data directory destroys no record on the other replicas.

Three nodes and ZooKeeper as real processes. Every record is acknowledged by all, on three disks, and read by a consumer
before a copy is put back.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtests.cluster.nodes import ClusterNode
from tests.e2e.cluster.test_cluster import (
    Cluster,
    described,
    produce,
    running_cluster,
    until,
    values,
)
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]

PARTITIONS = 6
EACH = 4
SESSION_MS = 8_000  # a killed node is back before its session has ended


def produce_everywhere(url: str, first: int) -> None:
    for partition in range(PARTITIONS):
        for value in range(first, first + EACH):
            produce(url, "t", value, partition)


def assert_all_in_sync(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        until(lambda url=node.url: all(row["in_sync"] == [1, 2, 3] for row in described(url, "t")))


def assert_nothing_lost(cluster: Cluster, count: int) -> None:
    assert_all_in_sync(cluster)
    for node in cluster.nodes.values():
        for partition in range(PARTITIONS):
            until(lambda url=node.url, p=partition: values(url, "t", p) == list(range(count)))


@contextmanager
def with_old_copy(
    path: Path, further: Path | None = None, *, is_first_old: bool = False
) -> Iterator[tuple[Cluster, Path, Path]]:
    """Run a cluster with records; the copy of a directory of the third node has only the first half of them."""
    own = {3: {"data-dir": [path / "node-3", further]}} if further else {}
    with running_cluster(path, own=own, **{"session-timeout-ms": SESSION_MS}) as cluster:
        cluster.create("t", PARTITIONS)
        produce_everywhere(cluster.nodes[1].url, 0)
        assert_all_in_sync(cluster)
        third = cluster.nodes[3]
        assert third.stop() == 0
        current = third.data if further is None or is_first_old else further
        old = path / "old"
        shutil.copytree(current, old)
        restart(third)
        assert_all_in_sync(cluster)
        produce_everywhere(cluster.nodes[1].url, EACH)
        assert_nothing_lost(cluster, 2 * EACH)
        yield cluster, current, old


def put_back(current: Path, old: Path) -> None:
    shutil.rmtree(current)
    shutil.copytree(old, current)


def restart(node: ClusterNode) -> str:
    node.begin_start()
    return node.wait_until_ready()


@pytest.mark.long
def test_an_old_copy_put_back_after_a_kill_counts_as_a_new_disk(tmp_path: Path) -> None:
    with with_old_copy(tmp_path) as (cluster, current, old):
        third = cluster.nodes[3]
        third.kill()
        put_back(current, old)
        restart(third)
        assert_nothing_lost(cluster, 2 * EACH)
        assert "is older than the coordination store knows" in third.errors
        produce_everywhere(third.url, 2 * EACH)
        assert_nothing_lost(cluster, 3 * EACH)


@pytest.mark.long
def test_an_old_copy_put_back_into_a_stopped_cluster_is_not_elected(tmp_path: Path) -> None:
    with with_old_copy(tmp_path) as (cluster, current, old):
        for node in cluster.nodes.values():
            assert node.stop() == 0
        put_back(current, old)
        for number in (3, 1, 2):
            cluster.nodes[number].begin_start()
        for node in cluster.nodes.values():
            node.wait_until_ready()
        assert_nothing_lost(cluster, 2 * EACH)


@pytest.mark.long
def test_only_the_second_directory_is_old(tmp_path: Path) -> None:
    with with_old_copy(tmp_path, tmp_path / "further") as (cluster, current, old):
        assert list(old.glob("topics/t/*/*")), "it has partitions"
        for node in cluster.nodes.values():
            assert node.stop() == 0
        put_back(current, old)
        for number in (3, 1, 2):
            cluster.nodes[number].begin_start()
        for node in cluster.nodes.values():
            node.wait_until_ready()
        assert_nothing_lost(cluster, 2 * EACH)


@pytest.mark.long
def test_only_the_first_directory_is_old(tmp_path: Path) -> None:
    """The node alone has been in sync at last: it leads the partitions of its other disk only."""
    further = tmp_path / "further"
    with with_old_copy(tmp_path, further, is_first_old=True) as (cluster, current, old):
        proven = sorted(int(one.name) for one in further.glob("topics/t/*/[0-9]*"))
        assert 0 < len(proven) < PARTITIONS
        for number in (1, 2, 3):
            assert cluster.nodes[number].stop() == 0
        put_back(current, old)
        third = cluster.nodes[3]
        third.begin_start()
        third.wait_until_ready()
        assert "is older than the coordination store knows" in third.errors
        until(lambda: [row["partition"] for row in described(third.url, "t") if row["leader"] == 3] == proven)
        for partition in proven:
            assert values(third.url, "t", partition) == list(range(2 * EACH))
        for number in (1, 2):
            cluster.nodes[number].begin_start()
        for node in cluster.nodes.values():
            node.wait_until_ready()
        assert_nothing_lost(cluster, 2 * EACH)


@pytest.mark.long
def test_two_nodes_from_copies_of_one_directory(tmp_path: Path) -> None:
    """The second is refused as long as the first is there, also with a snapshot of the running node."""
    with with_old_copy(tmp_path) as (cluster, current, old):
        third = cluster.nodes[3]
        snapshot = tmp_path / "snapshot"
        shutil.copytree(current, snapshot)
        for copy in (old, snapshot):
            settings = {"port": 0, "session-timeout-ms": SESSION_MS, "store": (tmp_path / "store").as_uri()}
            twin = ClusterNode(3, tmp_path / "twin", cluster.coordination, settings)
            twin.data.parent.mkdir(exist_ok=True)
            shutil.copytree(copy, twin.data)
            twin.begin_start()
            assert twin.wait_until_ended() == 1
            assert twin.errors.strip().splitlines()[-1].startswith("penstock: node 3 runs at " + third.url)
            shutil.rmtree(twin.data)
        assert third.is_running
        produce_everywhere(third.url, 2 * EACH)
        assert_nothing_lost(cluster, 3 * EACH)
