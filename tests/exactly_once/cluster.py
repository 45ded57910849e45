"""A run on three nodes and ZooKeeper: the kills of a node hit the leader of an input or the group's coordinator."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from random import Random
from zlib import crc32

import psutil

from engine.format.paths import GROUPS_TOPIC
from loadtests.cluster.nodes import ClusterNode
from loadtests.cluster.zookeeper import Zookeeper, reserve_port
from penstock.sync import Client
from tests.exactly_once.run import INPUT_PARTITIONS, PATIENT, Run
from tests.exactly_once.worker import GROUP, INPUT

NODES = (1, 2, 3)
SESSION_MS = 2000


class ClusterRun(Run):
    """A killed node starts after its session: another one leads meanwhile."""

    def __init__(self, directory: Path, recipe: str, seed: int) -> None:
        self._directory, self._recipe = directory, recipe
        self.random, self.inputs = Random(seed), 0
        self.kills: Counter[str] = Counter()
        self._workers = {}
        self._zookeeper = Zookeeper(directory / "zookeeper")
        self._zookeeper.start()
        (directory / "store").mkdir()
        ports = [reserve_port() for _ in NODES]
        coordination = f"zookeeper://127.0.0.1:{self._zookeeper.port}/exactly-once"
        self._nodes = {}
        for number, port in zip(NODES, ports, strict=True):
            given = {"port": port.getsockname()[1], "store": (directory / "store").as_uri()}
            given |= {"session-timeout-ms": SESSION_MS, "default-replication-factor": len(NODES)}
            port.close()
            self._nodes[number] = ClusterNode(number, directory, coordination, given)
            self._nodes[number].begin_start()
        for node in self._nodes.values():
            node.wait_until_ready()

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self._nodes.values()]

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.kill()
            worker.wait()
        for node in self._nodes.values():
            node.kill()
        self._zookeeper.kill()

    def kill(self, kind: str) -> None:
        if kind not in ("node", "shard"):
            super().kill(kind)
            return
        what = self.random.choice(("leader", "coordinator"))
        self.kills[f"{kind} of a {what}"] += 1
        node = self._nodes[self._victim(what)]
        if kind == "shard":
            os.kill(self.random.choice(psutil.Process(node.pid).children(recursive=True)).pid, signal.SIGKILL)
        else:
            node.kill()
            time.sleep(1.5 * SESSION_MS / 1000)
            node.begin_start()
            node.wait_until_ready()
        self.start_workers()

    def _victim(self, what: str) -> int:
        with Client(self.urls, options=PATIENT) as client:
            topic, number = INPUT, self.random.randrange(INPUT_PARTITIONS)
            while True:
                if what == "coordinator":
                    topic = GROUPS_TOPIC
                    number = crc32(GROUP.encode()) % len(client.describe_topic(topic)["partitions"])
                leader = client.describe_topic(topic)["partitions"][number]["leader"]
                if leader is not None:
                    return int(leader)
                time.sleep(0.1)
