"""Faults of a real cluster of three nodes and ZooKeeper, each staged as it happens in operation."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.e2e.cluster.test_cluster import Cluster, described, produce, until
from tests.operations.staged_faults import Fault, Staged
from tests.replication.zookeeper_process import zookeeper_process

Begin = Callable[[Cluster, int], None]  # with the process id of ZooKeeper


@contextmanager
def _broken_cluster(directory: Path, begin: Begin, **config: object) -> Iterator[Staged]:
    with zookeeper_process(directory / "zookeeper") as zookeeper:
        cluster = Cluster(directory, f"127.0.0.1:{zookeeper.port}")
        try:
            cluster.start()
            cluster.create("t", **config)
            produce(cluster.nodes[1].url, "t", 0)
            until(lambda: described(cluster.nodes[1].url, "t")[0]["in_sync"] == [1, 2, 3])
            for node in cluster.nodes.values():  # they keep their ports over a restart
                node.settings["port"] = int(node.url.rpartition(":")[2])
            urls = tuple(node.url for node in cluster.nodes.values())
            yield Staged(urls, lambda: begin(cluster, zookeeper.pid))
        finally:
            os.kill(zookeeper.pid, signal.SIGCONT)
            for node in cluster.nodes.values():
                node.kill()


def _pause_follower(cluster: Cluster, zookeeper: int) -> None:
    cluster.nodes[3].send(signal.SIGSTOP)


def stopped_zookeeper(directory: Path) -> AbstractContextManager[Staged]:
    return _broken_cluster(directory, lambda _, zookeeper: os.kill(zookeeper, signal.SIGSTOP))


def dead_zookeeper(directory: Path) -> AbstractContextManager[Staged]:
    return _broken_cluster(directory, lambda _, zookeeper: os.kill(zookeeper, signal.SIGKILL))


def paused_follower(directory: Path) -> AbstractContextManager[Staged]:
    return _broken_cluster(directory, _pause_follower, min_insync_replicas=2)


def _elect_unclean(cluster: Cluster, zookeeper: int) -> None:
    """The last replica in sync dies, and one that lacks its records comes back alone."""
    first, second, last = cluster.nodes.values()
    first.kill()
    second.kill()
    until(lambda: described(last.url, "t")[0]["in_sync"] == [3])
    produce(last.url, "t", 1)
    last.kill()
    first.begin_start()
    first.wait_until_ready()


def unclean_election(directory: Path) -> AbstractContextManager[Staged]:
    return _broken_cluster(directory, _elect_unclean, min_insync_replicas=1, unclean_election=True)


SILENT = {"also": frozenset({"no_controller"}), "pages": frozenset({"CoordinationSilent", "NoController"})}
CLUSTER_FAULTS = {
    "zookeeper paused": Fault(stopped_zookeeper, "coordination_silent", "has not answered", **SILENT),
    "zookeeper killed": Fault(dead_zookeeper, "coordination_silent", "has not answered", **SILENT),
    "unclean election": Fault(
        *(unclean_election, "unclean_election", "in epoch", frozenset({"NodeDown", "UncleanElection"}), "t"),
        also=frozenset({"under_replicated", "nodes_missing"}),
    ),
    "follower paused": Fault(
        *(paused_follower, "nodes_missing", "node 3 is not there", frozenset({"NodeDown"})),
        also=frozenset({"under_replicated"}),
    ),
}
