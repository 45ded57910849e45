"""A cluster of one node over the journal in its data directory: the cluster code, and the requests that one node
rejects.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.error
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import described, produce, values
from tests.e2e.lifecycle.test_refused_starts import assert_refused, snapshot
from tests.e2e.lifecycle.test_shards import children
from tests.e2e.node_process import running_process

pytestmark = pytest.mark.e2e

EMBEDDED: dict[str, object] = {"coordination": "embedded", "session_timeout_ms": 2000}


def answer_to(url: str, method: str, body: object = None) -> tuple[int, dict[str, Any]]:
    """Return the answer to a rejected request."""
    with pytest.raises(urllib.error.HTTPError) as found:
        call(url, method, body)
    return found.value.code, orjson.loads(found.value.read())


def test_topics_and_records_outlive_stops_kills_and_a_power_loss(tmp_path: Path) -> None:
    sent: list[int] = []
    taken: list[int] = []
    for end in ("kill", "power loss", "stop"):
        with running_process(tmp_path, **EMBEDDED) as node:
            if not sent:
                for topic, config in [("t", {}), ("lax", {"durability": "os"})]:
                    call(f"{node.url}/v1/topics/{topic}", "PUT", {"partitions": 2, "config": config})
            for topic in ("t", "lax"):
                assert produce(node.url, topic, len(sent)) == len(sent)
                assert values(node.url, topic) == [*sent, len(sent)]
                row = described(node.url, topic)[0]
                assert (row["leader"], row["replicas"], row["in_sync"]) == (1, [1], [1])
                assert row["leader_epoch"] > len(sent), "each life leads in an epoch of its own"
            taken.append(call(f"{node.url}/v1/producers", "POST")["producer_id"])
            sent.append(len(sent))
            if end == "stop":
                cluster = call(f"{node.url}/v1/cluster")
                assert (cluster["controller"], [one["leading"] for one in cluster["nodes"]]) == (1, [4])
                assert node.stop() == 0
            else:
                node.kill_all()
        if end == "power loss":
            running = tmp_path / "data" / "running"
            running.write_text(json.dumps({**json.loads(running.read_text()), "boot_id": "another"}))
    assert taken == sorted(set(taken))


@pytest.mark.long
def test_a_node_with_a_hung_shard_stops_on_a_signal_and_unlocks_its_directory(tmp_path: Path) -> None:
    with running_process(tmp_path, **EMBEDDED, shutdown_timeout_ms=0) as node:
        call(f"{node.url}/v1/topics/t", "PUT", {"partitions": 1})
        assert produce(node.url, "t", 0) == 0
        shard = children(node.pid)["node.processes.shard_process"]
        os.kill(shard, signal.SIGSTOP)
        try:
            assert node.stop() == 0
        finally:
            with suppress(ProcessLookupError):
                os.kill(shard, signal.SIGKILL)
    with running_process(tmp_path, **EMBEDDED) as node:
        assert values(node.url, "t") == [0]
        assert node.stop() == 0


def test_what_needs_another_node_is_refused_and_the_form_of_the_node_stays(tmp_path: Path) -> None:
    says = ["default_replication_factor is 3", "alone"]
    assert_refused(port=0, data_dir=tmp_path / "data", **EMBEDDED, default_replication_factor=3, says=says)
    assert not (tmp_path / "data").exists()
    with running_process(tmp_path, **EMBEDDED) as node:
        call(f"{node.url}/v1/topics/t", "PUT", {"partitions": 1})
        status, problem = answer_to(f"{node.url}/v1/topics/u", "PUT", {"partitions": 1, "replication_factor": 2})
        assert (status, problem["code"], problem["setting"]) == (400, "invalid_config", "replication_factor")
        assert "1 node can" in problem["detail"]
        assert "this node only" in problem["detail"]
        for path, body in [("drain", {"drained": True}), ("decommission", None)]:
            status, problem = answer_to(f"{node.url}/v1/cluster/nodes/1/{path}", "POST", body)
            assert (status, problem["code"]) == (409, "no_other_node")
            assert "this node only" in problem["detail"]
        wish = {"topic": "t", "partitions": {"0": [2]}}
        status, problem = answer_to(f"{node.url}/v1/cluster/reassignments", "POST", wish)
        assert (status, problem["code"]) == (400, "invalid_config")
        assert "[1]" in problem["detail"]
        status, problem = answer_to(f"{node.url}/v1/topics/t", "PATCH", {"replication_factor": 2})
        assert (status, problem["code"], problem["setting"]) == (400, "invalid_config", "replication_factor")
        assert "this node only" in problem["detail"]
        assert produce(node.url, "t", "here") == 0
        assert node.stop() == 0
    data = tmp_path / "data"
    before = snapshot(data)
    for shards in (0, 1):
        assert_refused(port=0, data_dir=data, shards=shards, says=["a node of cluster", "--coordination"])
    assert snapshot(data) == before
    (data / "coordination").rename(tmp_path / "coordination")
    assert_refused(port=0, data_dir=data, **EMBEDDED, says=["the coordination store has no cluster"])
    (data / "coordination").unlink()
    (tmp_path / "coordination").rename(data / "coordination")
    with running_process(tmp_path, **EMBEDDED) as node:
        assert values(node.url, "t") == ["here"]
        assert node.stop() == 0


@pytest.mark.long
def test_a_node_that_was_alone_brings_its_topics_along(tmp_path: Path) -> None:
    sent = list(range(3))
    with running_process(tmp_path, shards=2) as node:
        call(f"{node.url}/v1/topics/t", "PUT", {"partitions": 102, "config": {"retention_ms": 10**9}})
        call(f"{node.url}/v1/topics/gone", "PUT", {"partitions": 1})
        for value in sent:
            produce(node.url, "t", value, partition=101)
        call(f"{node.url}/v1/topics/gone", "DELETE")
        before = call(f"{node.url}/v1/topics/t")
        first = call(f"{node.url}/v1/producers", "POST")["producer_id"]
        node.kill_all()
    with running_process(tmp_path, **EMBEDDED) as node:
        after = call(f"{node.url}/v1/topics/t")
        assert (after["topic_id"], after["config"]) == (before["topic_id"], before["config"])
        assert produce(node.url, "t", 2, partition=101) == 2, "its key is known, so no record is added"
        assert produce(node.url, "t", 3, partition=101) == 3
        assert values(node.url, "t", 101) == [*sent, 3]
        assert {row["leader"] for row in described(node.url, "t")} == {1}
        assert [one["topic"] for one in call(f"{node.url}/v1/topics")["topics"]] == ["t"]
        assert call(f"{node.url}/v1/producers", "POST")["producer_id"] > first
        assert node.stop() == 0
