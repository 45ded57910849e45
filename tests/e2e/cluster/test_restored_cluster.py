"""A cluster whose nodes and coordination are all destroyed comes back from the store alone."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from node.commands.tier.command import tier
from tests.e2e.cluster.test_cluster import Cluster, described, produce, running_cluster, until, values
from tests.e2e.lifecycle.test_shards import call
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]


def test_a_destroyed_cluster_is_restored_with_its_records_and_replicas(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for directory in (before, after):
        directory.mkdir()
    store = (tmp_path / "objects").as_uri()
    (tmp_path / "objects").mkdir()
    with running_cluster(before, 2, store=store, tier_check_ms=50) as cluster:
        url = cluster.nodes[2].url
        wish = {"partitions": 2, "replication_factor": 2, "config": {"retention_ms": 10**9}}
        until(lambda: call(f"{url}/v1/topics/t", "PUT", wish))
        for number in range(10):
            produce(url, "t", number, partition=number % 2)
        call(f"{url}/v1/topics/t/roll", "POST")
        until(lambda: all(one["tiered_end"] == 5 for one in call(f"{url}/v1/topics/t/tier")["partitions"]))
        topic_id = call(f"{url}/v1/topics/t")["topic_id"]
        description = tmp_path.glob(f"objects/*/t/{topic_id}/topic.json")
        until(lambda: next(description, None) is not None)
    shutil.rmtree(before)
    arguments = ["restore", "--store", store, "--data-dir", str(after / "node-1"), "--json"]
    restored = json.loads(CliRunner().invoke(tier, arguments, catch_exceptions=False).stdout)
    assert restored["topics"][0]["replication_factor"] == 2
    with zookeeper_process(after / "zookeeper") as zookeeper, ExitStack() as ending:
        nodes = Cluster(after, f"127.0.0.1:{zookeeper.port}", 2, store=store, tier_check_ms=50).nodes
        for node in nodes.values():  # the restored one first: it creates the cluster
            ending.callback(node.kill)
            node.begin_start()
            node.wait_until_ready()
        url = nodes[2].url
        found = call(f"{url}/v1/topics/t")
        assert (found["topic_id"], found["config"]["retention_ms"]) == (topic_id, 10**9)
        assert [values(url, "t", number) for number in (0, 1)] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
        until(lambda: call(f"{url}/v1/topics/t", "PATCH", {"replication_factor": 2}) is not None)
        until(lambda: all(len(row["in_sync"]) == 2 for row in described(url, "t")))
        nodes[1].kill()
        until(lambda: all(row["leader"] == 2 for row in described(url, "t")))
        until(lambda: values(url, "t") == [0, 2, 4, 6, 8])
