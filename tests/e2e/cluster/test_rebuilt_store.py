"""A cluster whose coordination store was emptied comes back from its data directories, with real ZooKeeper."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

from loadtests.cluster.nodes import ClusterNode
from loadtests.cluster.zookeeper import Zookeeper
from node.commands.coordination import coordination
from tests.docs.console import PAGES
from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import SETTINGS, Cluster, described, poll, produce, until, values
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]


@contextmanager
def cluster_of(path: Path, count: int) -> Iterator[tuple[Cluster, Zookeeper]]:
    with zookeeper_process(path / "zookeeper") as zookeeper:
        cluster = Cluster(path, f"127.0.0.1:{zookeeper.port}", count, **SETTINGS)
        try:
            cluster.start()
            yield cluster, zookeeper
        finally:
            for node in cluster.nodes.values():
                node.kill()


def wipe(zookeeper: Zookeeper, path: Path) -> None:
    """All of ZooKeeper is new: its transaction ids, which are broker epochs, begin again."""
    zookeeper.kill()
    shutil.rmtree(path / "zookeeper" / "data")
    zookeeper.start()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(coordination, [str(one) for one in arguments])


def rebuild(cluster: Cluster, *arguments: object, nodes: tuple[int, ...] = (1, 2, 3)) -> Result:
    directories = [word for number in nodes for word in ("--data-dir", cluster.nodes[number].data)]
    return run("rebuild", "--coordination", cluster.coordination, *directories, *arguments)


def stop(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        assert node.stop() == 0


def start(cluster: Cluster, *numbers: int) -> None:
    for number in numbers:
        cluster.nodes[number].begin_start()
    for number in numbers:
        cluster.nodes[number].wait_until_ready()


def status_of(url: str, method: str = "GET") -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def produce_in_sequence(url: str, topic: str, producer: int, sequence: int) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Producer-Id": str(producer), "Producer-Epoch": "0"}
    body = orjson.dumps({"records": [{"value": f"sequence {sequence}"}]})
    request = urllib.request.Request(
        f"{url}/v1/topics/{topic}/partitions/0/records?acks=all", body, {**headers, "Producer-Seq": str(sequence)}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = orjson.loads(answer.read())
        return found["results"][0]


def files_of(node: ClusterNode) -> set[str]:
    return {str(file.relative_to(node.data)) for file in node.data.glob("topics/*/*/*/*.log")}


@pytest.mark.long
def test_the_node_of_a_small_cluster_comes_back_from_an_emptied_store(tmp_path: Path) -> None:
    """Before: the node refused to start, and nothing could help it."""
    with cluster_of(tmp_path, 1) as (cluster, zookeeper):
        node = cluster.nodes[1]
        config = {"min_insync_replicas": 1, "retention_ms": 10**9}
        until(lambda: call(f"{node.url}/v1/topics/t", "PUT", {"partitions": 2, "config": config}))
        until(lambda: call(f"{node.url}/v1/topics/gone", "PUT", {}))
        topic_id = call(f"{node.url}/v1/topics/t")["topic_id"]
        producer = call(f"{node.url}/v1/producers", "POST")["producer_id"]
        assert produce_in_sequence(node.url, "t", producer, 0)["base_offset"] == 0
        token, read = poll(node.url, "g", topics=["t"])
        assert read == ["sequence 0"]
        poll(node.url, "g", token=token)
        assert status_of(f"{node.url}/v1/topics/gone", "DELETE") in (200, 204)
        in_use = rebuild(cluster, nodes=(1,))
        assert "is in use by another process" in in_use.output
        stop(cluster)
        not_empty = rebuild(cluster, nodes=(1,))
        assert "nothing is written over it" in not_empty.output
        wipe(zookeeper, tmp_path)
        node.begin_start()
        assert node.wait_until_ended() == 1
        assert "rebuild it from their directories with penstock coordination rebuild" in node.errors

        inventory = tmp_path / "node-1.json"
        inventory.write_text(run("inventory", "--data-dir", node.data).stdout)
        place = ("rebuild", "--coordination", cluster.coordination, "--inventory", inventory)
        planned = json.loads(run(*place, "--dry-run", "--json").stdout)
        assert [one["topic"] for one in planned["topics"]] == ["__groups", "t"]
        ran = run(*place)
        assert ran.exit_code == 0, ran.output
        shown = [line.split() for line in ran.output.splitlines()]
        page = (PAGES / "operate/coordination.md").read_text().splitlines()
        header = next(line.split() for line in page if "in sync  end" in line)
        assert header in shown, "the page shows the output as it is"
        assert "Start all nodes" in ran.output

        start(cluster, 1)
        found = call(f"{node.url}/v1/topics/t")
        assert (found["topic_id"], found["config"]["retention_ms"]) == (topic_id, 10**9)
        until(lambda: values(node.url, "t") == ["sequence 0"])
        again = produce_in_sequence(node.url, "t", producer, 0)
        assert (again["base_offset"], again.get("duplicate")) == (0, True)
        assert produce_in_sequence(node.url, "t", producer, 1)["base_offset"] == 1
        assert poll(node.url, "g", topics=["t"])[1] == ["sequence 1"], "the group goes on where it was"
        assert status_of(f"{node.url}/v1/topics/gone") == 404
        assert call(f"{node.url}/v1/producers", "POST")["producer_id"] > producer
        until(lambda: call(f"{node.url}/v1/topics/new", "PUT", {}))
        assert produce(node.url, "new", 1) == 0
        assert "counts as a new disk" not in node.errors
        assert node.stop() == 0
        start(cluster, 1)
        until(lambda: values(node.url, "t") == ["sequence 0", "sequence 1"])


@pytest.mark.long
def test_three_nodes_lose_no_acknowledged_record_with_their_store(tmp_path: Path) -> None:
    """One node was killed, one topic was deleted while a node was away, and one before."""
    with cluster_of(tmp_path, 3) as (cluster, zookeeper):
        one, _, three = cluster.nodes.values()
        for topic in ("t", "gone", "gone-meanwhile"):
            cluster.create(topic, 3)
        for value in range(30):
            produce(one.url, "t", value, value % 3)
        token, read = poll(one.url, "g", topics=["t"])
        assert len(read) == 30
        poll(one.url, "g", token=token)
        until(lambda: all(row["in_sync"] == [1, 2, 3] for row in described(one.url, "__groups")))
        assert status_of(f"{one.url}/v1/topics/gone", "DELETE") in (200, 204)
        three.kill()
        until(lambda: all(row["in_sync"] == [1, 2] for row in described(one.url, "t")))
        assert status_of(f"{one.url}/v1/topics/gone-meanwhile", "DELETE") in (200, 204)
        for value in range(30, 60):
            produce(one.url, "t", value, value % 3)
        one.kill()
        assert cluster.nodes[2].stop() == 0
        wipe(zookeeper, tmp_path)

        doubtful = rebuild(cluster)
        assert doubtful.exit_code == 1
        assert "it is on node 3 and not on nodes 1, 2" in doubtful.output
        assert "--leave-out gone-meanwhile" in doubtful.output
        ran = rebuild(cluster, "--leave-out", "gone-meanwhile")
        assert ran.exit_code == 0, ran.output
        before = {file for file in files_of(three) if "gone-meanwhile" in file}
        start(cluster, 1, 2, 3)
        for node in cluster.nodes.values():
            until(lambda url=node.url: all(row["in_sync"] == [1, 2, 3] for row in described(url, "t")))
            for partition in range(3):
                expected = list(range(partition, 60, 3))
                until(lambda url=node.url, p=partition, e=expected: values(url, "t", p) == e)
            assert status_of(f"{node.url}/v1/topics/gone") == 404
            assert status_of(f"{node.url}/v1/topics/gone-meanwhile") == 404
        assert {file for file in files_of(three) if "gone-meanwhile" in file} == before != set()
        read = []
        token, records = poll(one.url, "g", topics=["t"])
        while records:
            read += records
            token, records = poll(one.url, "g", token=token)
        assert sorted(read) == list(range(30, 60))
        cluster.create("new", 3)
        assert produce(three.url, "new", 1) == 0
        three.kill()
        until(lambda: produce(one.url, "t", "x") == 20)


@pytest.mark.long
def test_an_old_copy_and_an_absent_directory_make_no_loss(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3) as (cluster, zookeeper):
        one, _, three = cluster.nodes.values()
        cluster.create("t", 3)
        for value in range(15):
            produce(one.url, "t", value, value % 3)
        assert three.stop() == 0
        shutil.copytree(three.data, tmp_path / "old")
        start(cluster, 3)
        until(lambda: all(row["in_sync"] == [1, 2, 3] for row in described(one.url, "t")))
        for value in range(15, 30):
            produce(one.url, "t", value, value % 3)
        stop(cluster)
        wipe(zookeeper, tmp_path)
        shutil.move(three.data, tmp_path / "newest")
        shutil.copytree(tmp_path / "old", three.data)
        assert "are absent" in rebuild(cluster, nodes=(3,)).output
        ran = rebuild(cluster)
        assert ran.exit_code == 0, ran.output
        start(cluster, 3, 1, 2)
        assert_all(cluster, 30)

        stop(cluster)
        wipe(zookeeper, tmp_path)
        ran = rebuild(cluster, "--absent-node", 3, nodes=(1, 2))
        assert ran.exit_code == 0, ran.output
        start(cluster, 1, 2)
        before = files_of(three)
        three.begin_start()
        assert three.wait_until_ended() == 1
        assert "was rebuilt without the data directory of node 3" in three.errors
        assert files_of(three) == before
        shutil.rmtree(three.data)
        start(cluster, 3)
        assert_all(cluster, 30)


@pytest.mark.long
def test_running_nodes_whose_store_is_emptied_delete_nothing_and_say_what_to_do(tmp_path: Path) -> None:
    """The topics vanish first, as they may when a program deletes key after key."""
    with cluster_of(tmp_path, 3) as (cluster, zookeeper):
        one = cluster.nodes[1]
        cluster.create("t", 3)
        for value in range(15):
            produce(one.url, "t", value, value % 3)
        before = [files_of(node) for node in cluster.nodes.values()]
        client = KazooClient(f"127.0.0.1:{zookeeper.port}")
        client.start()
        for path in ("/penstock/topics", "/penstock/states", "/penstock"):
            while client.exists(path):
                with suppress(NotEmptyError):  # a node has made a key meanwhile
                    client.delete(path, recursive=True)
        client.stop()
        for node in cluster.nodes.values():
            until(lambda url=node.url: call(f"{url}/readyz")["status"] == "degraded")
            until(lambda errors=node: "penstock coordination rebuild" in errors.errors)
            assert status_of(f"{node.url}/v1/topics/t") == 200
            assert status_of(f"{node.url}/v1/topics/t/partitions/0/records?offset=0") == 503
            assert "was quarantined" not in node.errors
        stop(cluster)
        assert [files_of(node) for node in cluster.nodes.values()] == before
        ran = rebuild(cluster)
        assert ran.exit_code == 0, ran.output
        start(cluster, 1, 2, 3)
        assert_all(cluster, 15)


def assert_all(cluster: Cluster, count: int) -> None:
    for node in cluster.nodes.values():
        until(lambda url=node.url: all(row["in_sync"] == [1, 2, 3] for row in described(url, "t")))
        for partition in range(3):
            until(lambda url=node.url, p=partition: values(url, "t", p) == list(range(p, count, 3)))
