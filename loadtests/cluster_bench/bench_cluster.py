"""Three nodes, ZooKeeper and a store below one directory, and the HTTP calls of the measurements.

It measures nothing itself. Calls go to a live node, never to the stopped one.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.cluster.nodes import ClusterNode
from loadtests.cluster.zookeeper import Zookeeper
from loadtests.generators.bodies import JSON_TYPE
from loadtests.host import proc
from loadtests.host.admin_client import AdminClient

NODES = 3
ZOOKEEPER_PATH = "/penstock"
CHECK_S = 0.05
# No segment is sealed during other measurements: tiering has its own figures.
QUIET: dict[str, object] = {"segment_bytes": 1 << 30, "segment_ms": 24 * 3_600_000}


class ClusterTimeout(Exception):
    """The cluster did not reach a state in time. The measurement is invalid."""


@dataclass(frozen=True, slots=True)
class BenchCluster:
    """The running cluster."""

    directory: Path
    zookeeper: Zookeeper
    nodes: list[ClusterNode]

    def node(self, node_id: int) -> ClusterNode:
        return next(node for node in self.nodes if node.node_id == node_id)

    def other_than(self, *node_ids: int) -> ClusterNode:
        return next(node for node in self.nodes if node.node_id not in node_ids and node.is_running)

    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, object] | None = None) -> None:
        body = {"partitions": partitions, "replication_factor": NODES, "config": QUIET | (config or {})}
        self.control().request("PUT", f"/v1/topics/{topic}", json.dumps(body).encode(), content_type=JSON_TYPE)
        self.wait_in_sync(topic)

    def control(self, *except_for: int) -> AdminClient:
        return AdminClient(self.other_than(*except_for).url)

    def partitions(self, topic: str, *except_for: int) -> list[dict[str, Any]]:
        _, data = self.control(*except_for).request("GET", f"/v1/topics/{topic}")
        rows: list[dict[str, Any]] = json.loads(data)["partitions"]
        return rows

    def leader_of(self, topic: str, *except_for: int) -> ClusterNode:
        """Returns the leader of partition 0. Raises ClusterTimeout."""

        def leader() -> int | None:
            leader_id = self.partitions(topic, *except_for)[0]["leader"]
            return None if leader_id in except_for else leader_id

        return self.node(self.until(f"{topic} has a leader", leader))

    def wait_in_sync(self, topic: str, timeout_s: float = 60.0) -> None:
        def is_so() -> bool:
            return all(len(row["in_sync"]) == NODES and row["leader"] is not None for row in self.partitions(topic))

        self.until(f"all replicas of {topic} are in sync", is_so, timeout_s)

    def cluster(self, *except_for: int) -> dict[str, Any]:
        _, data = self.control(*except_for).request("GET", "/v1/cluster")
        document: dict[str, Any] = json.loads(data)
        return document

    def until(self, what: str, check: Callable[[], Any], timeout_s: float = 60.0) -> Any:
        """Calls `check` until its result is true, and returns it. Errors count as false. Raises ClusterTimeout."""
        deadline = time.monotonic() + timeout_s
        last: Exception | None = None
        while time.monotonic() < deadline:
            try:
                if result := check():
                    return result
            except (RuntimeError, OSError) as error:
                last = error
            time.sleep(CHECK_S)
        raise ClusterTimeout(f"{what}: not within {timeout_s:.0f} s ({last})")

    def usage(self) -> proc.Usage:
        """Returns the usage of all nodes together."""
        usages = [proc.usage(node.pid) for node in self.nodes if node.is_running]
        return proc.Usage(sum(usage.cpu_s for usage in usages), sum(usage.rss_bytes for usage in usages))

    def wait_stopped(self, node: ClusterNode, timeout_s: float) -> None:
        self.until(f"node {node.node_id} has stopped", lambda: not node.is_running, timeout_s)

    def start_again(self, node: ClusterNode) -> None:
        node.begin_start()
        node.wait_until_ready()


@contextlib.contextmanager
def running(directory: Path, *, shards: int, session_timeout_ms: int) -> Iterator[BenchCluster]:
    """Runs the cluster. Raises ZookeeperFailed, NodeFailed."""
    directory.mkdir(exist_ok=True)
    (directory / "store").mkdir(exist_ok=True)
    zookeeper = Zookeeper(directory / "zookeeper")
    zookeeper.start()
    settings = {
        "port": 0,
        "shards": shards,
        "store": (directory / "store").as_uri(),
        "session-timeout-ms": session_timeout_ms,
    }
    address = f"zookeeper://127.0.0.1:{zookeeper.port}{ZOOKEEPER_PATH}"
    nodes = [ClusterNode(number, directory, address, settings) for number in range(1, NODES + 1)]
    try:
        for node in nodes:
            node.begin_start()
        for node in nodes:
            node.wait_until_ready()
        yield BenchCluster(directory, zookeeper, nodes)
    finally:
        for node in nodes:
            node.kill()
        zookeeper.kill()
