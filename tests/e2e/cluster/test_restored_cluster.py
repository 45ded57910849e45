"""A cluster whose nodes and coordination are all destroyed comes back from the store by one command."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from node.commands.tier.command import tier
from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import Cluster, described, produce, running_cluster, until, values
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tier, ["restore", *arguments, "--json"])


def test_a_destroyed_cluster_is_restored_with_its_records_and_replicas(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for directory in (before, after):
        directory.mkdir()
    store = (tmp_path / "objects").as_uri()
    (tmp_path / "objects").mkdir()
    with running_cluster(before, store=store, tier_check_ms=50) as cluster:
        url = cluster.nodes[2].url
        wish = {"partitions": 3, "replication_factor": 3, "config": {"retention_ms": 10**9}}
        until(lambda: call(f"{url}/v1/topics/t", "PUT", wish))
        for number in range(12):
            produce(url, "t", number, partition=number % 3)
        call(f"{url}/v1/topics/t/roll", "POST")
        until(lambda: all(one["tiered_end"] == 4 for one in call(f"{url}/v1/topics/t/tier")["partitions"]))
        topic_id = call(f"{url}/v1/topics/t")["topic_id"]
        until(lambda: list(tmp_path.glob(f"objects/*/t/{topic_id}/topic.json")) != [])
    shutil.rmtree(before)
    with zookeeper_process(after / "zookeeper") as zookeeper, ExitStack() as ending:
        cluster = Cluster(after, f"127.0.0.1:{zookeeper.port}", store=store, tier_check_ms=50)
        place = ["--store", store, "--coordination", cluster.coordination, "--nodes", "1,2,3"]
        first = [*place, "--data-dir", str(after / "node-1")]
        planned = json.loads(run(*first, "--dry-run").stdout)
        assert [(one["topic"], one["replication_factor"]) for one in planned["topics"]] == [("t", 3)]
        assert not (after / "node-1").exists()
        assert json.loads(run(*first).stdout)["topics"][0]["topic_id"] == topic_id
        assert "is not empty" in run(*first).output, "the directory is used"
        again = run(*place, "--data-dir", str(after / "another"))
        assert "the place in --coordination has cluster" in again.output
        for node in cluster.nodes.values():
            ending.callback(node.kill)
        cluster.start()
        nodes = cluster.nodes
        url = nodes[2].url
        found = call(f"{url}/v1/topics/t")
        assert (found["topic_id"], found["config"]["retention_ms"]) == (topic_id, 10**9)
        until(lambda: all(len(row["in_sync"]) == 3 for row in described(url, "t")))
        assert [values(url, "t", number) for number in range(3)] == [[*range(number, 12, 3)] for number in range(3)]
        nodes[1].kill()
        until(lambda: all(row["leader"] in (2, 3) for row in described(url, "t")))
        until(lambda: values(url, "t") == [0, 3, 6, 9])
        assert produce(url, "t", "new") == 4
