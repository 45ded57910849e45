"""The road of docs/operate/encryption.md, walked by a cluster under load: from plain to TLS everywhere, and back.

A step is a rolling restart of all nodes. What the nodes send each other is captured on the loopback interface.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from gateway.links.node_tls import uri_of
from loadtests.cluster.nodes import ROOT, ClusterNode
from loadtests.cluster.zookeeper import Zookeeper
from tests.certificates import Authority
from tests.e2e.calls import call
from tests.e2e.cluster.test_secured_zookeeper import LOGIN, run
from tests.replication.zookeeper_process import TICK_MS, WHY_NOT, is_installed
from tests.upgrade.rolling import restart_in_turn, running_nodes

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not is_installed(), reason=WHY_NOT),
    pytest.mark.skipif(os.geteuid() != 0, reason="a capture of the loopback interface needs root"),
]

ETH_P_ALL = 3  # Linux; not among the names of `socket`
CALM_S = 0.1
PAUSE_S = 1.5  # a node learns of a step within a sixth of its session timeout, 6 s
CAPTURE_S = 0.5  # in which every follower fetches


@contextmanager
def capture() -> Iterator[bytearray]:
    """Yield what passes the loopback interface meanwhile. Needs root."""
    seen = bytearray()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as packets:
        packets.bind(("lo", 0))
        packets.settimeout(0.1)
        is_over = threading.Event()

        def read() -> None:
            while not is_over.is_set():
                try:
                    seen.extend(packets.recv(65_536))
                except TimeoutError:
                    continue

        reading = threading.Thread(target=read)
        reading.start()
        try:
            yield seen
        finally:
            is_over.set()
            reading.join()


def secret_of(zookeeper: Zookeeper) -> str:
    """Read the cluster's secret without a login, over the plain port."""
    client = KazooClient(f"127.0.0.1:{zookeeper.port}")
    client.start()
    try:
        return str(json.loads(client.get("/penstock/cluster")[0][17:])["secret"])
    finally:
        client.stop()
        client.close()


class Road:
    """Changes the settings of a node to those of a step."""

    def __init__(self, directory: Path, zookeeper: Zookeeper, authority: Authority) -> None:
        self._zookeeper = zookeeper
        self._authority = authority
        self._login = directory / "login"
        self._login.write_text(LOGIN)
        self.cluster_id = ""

    def change(self, mode: str, node: ClusterNode) -> None:
        for name in [name for name in node.settings if name.startswith(("internal-tls", "zookeeper-"))]:
            del node.settings[name]
        node.settings["coordination"] = f"zookeeper://127.0.0.1:{self._zookeeper.port}/penstock"
        if mode == "off":
            return
        name = f"node{node.node_id}"
        own = self._authority.issue(name, f"URI:{uri_of(self.cluster_id, node.node_id)}", f"DNS:{name}")
        files = {"tls-ca": self._authority.ca, "tls-cert": own.cert, "tls-key": own.key}
        node.settings |= {
            "internal-tls": mode,
            **{f"internal-{name}": path for name, path in files.items()},
            **{f"zookeeper-{name}": path for name, path in files.items()},
            "zookeeper-login-file": self._login,
            "coordination": f"zookeeper://127.0.0.1:{self._zookeeper.tls_port}/penstock",
        }
        if mode != "accept":
            node.settings["zookeeper-acl"] = True


@pytest.mark.long
@pytest.mark.parametrize(
    "modes",
    [
        ["accept", "dial", "require"],
        pytest.param(["accept", "dial", "require", "dial", "accept", "off"], marks=pytest.mark.long),
    ],
    ids=["there", "there and back"],
)
async def test_a_cluster_walks_to_tls_without_an_error_for_a_client(tmp_path: Path, modes: list[str]) -> None:
    """The keys of ZooKeeper are secured at the end of the road there, and opened first on the road back."""
    authority = Authority(tmp_path / "tls")
    zookeeper = Zookeeper(tmp_path / "zookeeper", TICK_MS, tls=authority.issue_for_zookeeper("server", "IP:127.0.0.1"))
    road = Road(tmp_path, zookeeper, authority)
    is_secret_seen: list[bool] = []
    with running_nodes(tmp_path, ROOT, zookeeper) as nodes:
        road.cluster_id = call(f"{nodes[1].url}/v1/cluster")["cluster_id"]
        secrets = [secret_of(zookeeper)]

        def after_step(number: int) -> None:
            with capture() as packets:
                time.sleep(CAPTURE_S)
            is_secret_seen.append(any(secret.encode() in packets for secret in secrets))
            settings = {name: one for name, one in nodes[1].settings.items() if name.startswith("zookeeper-")}
            if modes[number - 1] == "require":
                run("secure", settings, str(nodes[1].settings["coordination"]))
                with pytest.raises(NoAuthError):
                    secret_of(zookeeper)
                run("rotate-secret", settings, str(nodes[1].settings["coordination"]), "--pause", str(PAUSE_S))
            elif "require" in modes[:number] and modes[number - 1] == "dial":
                run("secure", settings, str(nodes[1].settings["coordination"]), "--open")
                secrets.append(secret_of(zookeeper))

        steps = [partial(road.change, mode) for mode in modes]
        found = await restart_in_turn(nodes, steps, "this", CALM_S, after_step)
    assert found.findings == [], str(found)
    assert found.verdict.acknowledged > 100, "there was load"
    assert len(set(secrets)) == len(secrets)
    assert is_secret_seen == [mode in ("accept", "off") for mode in modes]
