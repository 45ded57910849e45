"""A coordination store that does not answer: every place that describes the cluster says how old its knowledge is."""

from __future__ import annotations

import math
import os
import re
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import SETTINGS, Cluster, produce, until
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]
NAMES = (
    "penstock_coordination_age_seconds",
    "penstock_active_controller",
    "penstock_under_replicated_partitions",
    "penstock_cluster_nodes",
)


def gauges(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {name: float(re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)[1]) for name in NAMES}


def test_a_silent_store_is_named_everywhere_and_a_node_that_dies_meanwhile_is_not_called_alive(tmp_path: Path) -> None:
    """Before: /readyz ready, one active controller, nothing under-replicated, no line, and a killed node alive."""
    with zookeeper_process(tmp_path / "zookeeper") as zookeeper:
        cluster = Cluster(tmp_path, f"127.0.0.1:{zookeeper.port}", 2, **{**SETTINGS, "session-timeout-ms": 3000})
        one, two = cluster.nodes.values()
        try:
            cluster.start()
            wish = {"partitions": 1, "replication_factor": 2, "config": {"min_insync_replicas": 1}}
            until(lambda: call(f"{one.url}/v1/topics/t", "PUT", wish))
            produce(one.url, "t", 1)
            until(lambda: gauges(one.url)["penstock_cluster_nodes"] == 2)
            assert call(f"{one.url}/readyz") == {"status": "ready"}
            assert call(f"{one.url}/v1/cluster")["coordination"]["silent"] is False

            os.kill(zookeeper.pid, signal.SIGSTOP)
            two.kill()
            until(lambda: call(f"{one.url}/readyz")["status"] == "degraded")
            document: dict[str, Any] = call(f"{one.url}/v1/cluster")
            assert document["coordination"]["silent"]
            assert document["coordination"]["age_ms"] >= 3000
            assert [(row["alive"], row["stale"]) for row in document["nodes"]] == [(True, False), (True, True)]
            assert document["controller"] is None
            # Findings are a second old at most.
            until(
                lambda: (
                    [
                        finding["level"]
                        for finding in call(f"{one.url}/v1/overview")["findings"]
                        if finding["code"] == "coordination_silent"
                    ]
                    == ["fail"]
                )
            )
            age_s, is_controller, *unknown = gauges(one.url).values()
            assert age_s >= 3
            assert is_controller == 0
            assert all(map(math.isnan, unknown))
            until(lambda: "the coordination store is silent" in one.errors)

            os.kill(zookeeper.pid, signal.SIGCONT)
            until(lambda: call(f"{one.url}/readyz")["status"] == "ready")
            until(lambda: [row["alive"] for row in call(f"{one.url}/v1/cluster")["nodes"]] == [True, False])
            until(lambda: gauges(one.url)["penstock_under_replicated_partitions"] >= 1)
            lines = ("the coordination store is silent", "the coordination store answers again")
            until(lambda: one.errors.count(lines[0]) == one.errors.count(lines[1]) == 1)
        finally:
            for node in cluster.nodes.values():
                node.kill()
