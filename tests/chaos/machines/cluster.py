"""ZooKeeper, three nodes and the clients, each on its own host; the harness runs on the clients' host.

Starts, queries and stops the cluster; tests/chaos/faults.py has the faults. Calls that wait for processes run in
threads, so that the load continues in the event loop.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from zlib import crc32

from engine.format.paths import GROUPS_TOPIC
from tests.chaos.clients.node_client import NodeClient, now, open_session
from tests.chaos.machines.disks import make_small_disk
from tests.chaos.machines.hosts import ROOT, NodeHost, ZookeeperHost
from tests.chaos.machines.leftovers import registry
from tests.chaos.machines.namespaces import Network
from tests.skew.shifted_clock import ShiftedClock

NODES = (1, 2, 3)
CLIENTS = "clients"
PARTITIONS = 3
HEALTHY_S = 90.0  # recovery must be complete by then
SETTLED_S = 0.5
REBUILD_S = 120.0
SESSION_TIMEOUT_MS = 6_000  # the node's default; sets the failure detection time


class NotHealthy(Exception):
    """Names what is still missing long after the end of the fault."""


class HttpNode(Protocol):
    """A node's HTTP interface and disk."""

    url: str
    data: Path


AnyNode = TypeVar("AnyNode", bound=HttpNode)


class HttpCluster(Generic[AnyNode]):
    """The nodes by number, on any host: their reported states, and whether the cluster is healthy."""

    def __init__(self, nodes: Mapping[int, AnyNode]) -> None:
        self.nodes = nodes

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes.values()]

    async def request(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Query any node; returns None if no node answers."""
        async with open_session() as session:
            client = NodeClient(session, self.urls, 0)
            for _ in self.nodes:
                answer = await client.request(method, path, body)
                if 200 <= answer.status < 300:
                    return answer.json
                client.next_node()
        return None

    async def create(self, topic: str) -> None:
        config = b'"config":{"min_insync_replicas":2}'
        body = b'{"partitions":%d,"replication_factor":3,%s}' % (PARTITIONS, config)
        deadline = time.monotonic() + HEALTHY_S
        while await self.request("PUT", f"/v1/topics/{topic}", body) is None:
            assert time.monotonic() < deadline, "the topic cannot be made"
            await asyncio.sleep(0.2)

    async def rows(self, topic: str) -> list[dict[str, Any]]:
        answer = await self.request("GET", f"/v1/topics/{topic}")
        return answer["partitions"] if answer else []

    async def leader(self, topic: str, partition: int) -> AnyNode:
        """Return the leader; waits until there is one."""
        deadline = time.monotonic() + HEALTHY_S
        while time.monotonic() < deadline:
            for row in await self.rows(topic):
                if row["partition"] == partition and row["leader"] in self.nodes:
                    return self.nodes[row["leader"]]
            await asyncio.sleep(0.1)
        raise NotHealthy(f"{topic}/{partition} has no leader")

    async def coordinator(self, group: str) -> AnyNode:
        """Return the leader of the group's partition of the groups topic."""
        while not (rows := await self.rows(GROUPS_TOPIC)):
            await asyncio.sleep(0.1)
        return await self.leader(GROUPS_TOPIC, crc32(group.encode()) % len(rows))

    async def wait_until_healthy(self, topic: str, *, is_quiet: bool = False) -> list[dict[str, Any]]:
        """Wait until all nodes report all replicas in sync. When no producer runs, all records must be committed.
        Raises NotHealthy.
        """
        deadline = time.monotonic() + HEALTHY_S
        while True:
            states = [await self._rows_of(url, topic) for url in self.urls]
            missing = [what for rows in states for row in rows if (what := _missing(row, is_quiet=is_quiet))]
            missing += [
                f"{url} does not describe {topic}" for url, rows in zip(self.urls, states, strict=True) if not rows
            ]
            if not missing and all(_states(rows) == _states(states[0]) for rows in states):
                return states[0]
            if time.monotonic() > deadline:
                raise NotHealthy("; ".join(dict.fromkeys(missing)) or f"nodes report different states: {states}")
            await asyncio.sleep(0.2)

    async def _rows_of(self, url: str, topic: str) -> list[dict[str, Any]]:
        async with open_session() as session:
            answer = await NodeClient(session, [url], 0).request("GET", f"/v1/topics/{topic}")
        return answer.json["partitions"] if answer.status == 200 else []


class Cluster(HttpCluster[NodeHost]):
    """A cluster on its own hosts."""

    def __init__(
        self, network: Network, zookeeper: ZookeeperHost, nodes: dict[int, NodeHost], session_s: float
    ) -> None:
        super().__init__(nodes)
        self.network, self.zookeeper = network, zookeeper
        self.session_s = session_s
        self.injections: list[tuple[float, str]] = []

    def __repr__(self) -> str:
        return f"Cluster({self.network!r}, running={[node.node_id for node in self.nodes.values() if node.is_running]})"

    def start(self) -> None:
        self.zookeeper.start()
        for node in self.nodes.values():
            node.begin_start()
        for node in self.nodes.values():
            node.wait_until_ready()

    def note_injection(self, what: str) -> None:
        self.injections.append((now(), what))

    def log_sizes(self) -> dict[Path, int]:
        """Return the bytes of each log file of each node."""
        files = (file for node in self.nodes.values() for file in node.data.glob("topics/**/*.log"))
        return {file: file.stat().st_size for file in files}

    def rebuild_store(self) -> None:
        """Write the content of an empty coordination store from the directories of the stopped nodes."""
        nodes = list(self.nodes.values())
        words = [word for node in nodes for word in ("--data-dir", str(node.data))]
        command = [sys.executable, "-m", "penstock.cli.main", "coordination", "rebuild"]
        ran = subprocess.run(
            [*command, "--coordination", self.zookeeper.url, *words],
            cwd=nodes[0].directory,
            env={**os.environ, "PYTHONPATH": str(nodes[0].source)},
            capture_output=True,
            text=True,
            timeout=REBUILD_S,
            check=False,
        )
        assert ran.returncode == 0, f"rebuild ended with {ran.returncode}: {ran.stdout}{ran.stderr}"

    async def mend(self) -> None:
        """Undo every fault: restore links and clocks, and run every process."""
        self.network.heal_all()
        for node in self.nodes.values():
            if node.clock is not None:
                node.clock.step(0)
        if not self.zookeeper.is_running:
            await asyncio.to_thread(self.zookeeper.start)
        for node in self.nodes.values():
            if node.is_running:
                node.resume()
            else:
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.start)


def _states(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [(row["leader"], row["leader_epoch"], sorted(row["in_sync"])) for row in rows]


def _missing(row: dict[str, Any], *, is_quiet: bool) -> str | None:
    if row["leader"] is None or len(row["in_sync"]) < len(NODES):
        return f"partition {row['partition']} has leader {row['leader']} and in sync {row['in_sync']}"
    if is_quiet and row["log_end"] != row["high_watermark"]:
        return f"partition {row['partition']} is committed to {row['high_watermark']} of {row['log_end']}"
    return None


@contextmanager
def running_cluster(
    *,
    source: Path = ROOT,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    has_small_disks: bool = False,
    has_clocks: bool = False,
) -> Iterator[Cluster]:
    """Run a cluster. This process moves to the clients' host; later clusters can be started in the same process."""
    with registry() as namespaces:
        directory = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
        namespaces.note("directory", str(directory))
        network = Network(["zk", *(f"n{number}" for number in NODES), CLIENTS], namespaces)
        network.enter(CLIENTS)
        zookeeper = ZookeeperHost("zk", network, directory / "zk")
        (directory / "store").mkdir()
        states: dict[str, object] = {
            "coordination": zookeeper.url,
            "shards": 1,
            "session-timeout-ms": session_timeout_ms,
            "default-replication-factor": len(NODES),  # of the topic of the groups
            "store": (directory / "store").as_uri(),
            "push-targets": f"{network.address(CLIENTS)}/32",
            "push-http": True,
        }
        nodes = {n: NodeHost(n, network, directory / f"n{n}", states, source) for n in NODES}
        if has_clocks:
            for node in nodes.values():
                node.clock = ShiftedClock(node.directory / "clock")
        if has_small_disks:
            for node in nodes.values():
                make_small_disk(node.directory / "disk", namespaces)
                node.data = node.directory / "disk" / "data"
        cluster = Cluster(network, zookeeper, nodes, session_timeout_ms / 1000)
        cluster.start()
        yield cluster


def copy_logs(cluster: Cluster, target: Path) -> None:
    """Copy the log output of the processes for later inspection."""
    target.mkdir(parents=True, exist_ok=True)
    for host in (cluster.zookeeper, *cluster.nodes.values()):
        shutil.copy(host.directory / "log", target / f"{host.name}.log")
