"""Rules and tokens on three nodes: a change is live everywhere within two seconds, and holds without the store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.admin.peer_calls import SERVED_S
from tests.e2e.calls import send
from tests.e2e.cluster.test_cluster import SETTINGS, Cluster, until
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process
from tests.tokens import add_token

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]
LIVE_S = 2.0


def ask(token: str, url: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
    """Return status and document of an answer."""
    status, _, answer = send(url, method, body, token)
    return status, orjson.loads(answer or b"null")


def live_after_s(cluster: Cluster, token: str, path: str, status: int) -> float:
    """Return after how many seconds all nodes have answered with the status."""
    began = time.monotonic()
    waiting = list(cluster.nodes.values())
    while waiting:
        waiting = [node for node in waiting if ask(token, node.url + path)[0] != status]
        assert time.monotonic() < began + 30, waiting
    return time.monotonic() - began


def age_s(token: str, url: str) -> float:
    """Return how old the rules of a node are, by its metrics."""
    lines = send(f"{url}/metrics", token=token)[2].decode().splitlines()
    (line,) = [line for line in lines if line.startswith("penstock_access_age_seconds")]
    return float(line.split()[-1])


def penstock(token: str, url: str, arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command against a node."""
    command = [sys.executable, "-m", "penstock.cli.main", *arguments.split(), "--url", url]
    environment = {**os.environ, "PENSTOCK_TOKEN": token}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)


def test_rules_of_one_node_are_those_of_all_also_while_the_store_is_silent(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    boss = add_token(tokens, "boss", read=[""], write=[""], admin=[""])
    own = {"tokens-file": tokens, "superusers": "token:boss", "session-timeout-ms": 6000}
    with zookeeper_process(tmp_path / "zookeeper") as zookeeper:
        cluster = Cluster(tmp_path, f"127.0.0.1:{zookeeper.port}", 3, **{**SETTINGS, **own})
        one, two, three = cluster.nodes.values()
        try:
            cluster.start()
            until(lambda: ask(boss, f"{one.url}/v1/topics/t", "PUT", {"partitions": 1})[0] == 201)
            until(lambda: all(ask(boss, f"{node.url}/v1/topics/t")[0] == 200 for node in cluster.nodes.values()))
            status, made = ask(boss, f"{one.url}/v1/access/tokens", "POST", {"name": "shop"})
            assert status == 201
            shop = made["token"]
            assert made["behind"] == []
            for node in cluster.nodes.values():
                assert ask(shop, f"{node.url}/v1/topics")[0] == 200, "all serve a change that is answered"
            rule = {"principals": ["token:shop"], "operations": ["read"], "resource": "topic", "name": "t", "id": "r"}
            assert ask(boss, f"{two.url}/v1/access/rules", "POST", rule)[0] == 201
            for node in cluster.nodes.values():
                assert ask(shop, f"{node.url}/v1/topics/t")[0] == 200
                assert 0 <= age_s(boss, node.url) < 10
            assert ask(boss, f"{three.url}/v1/access/rules/r", "DELETE")[0] == 200
            assert live_after_s(cluster, shop, "/v1/topics/t", 403) < LIVE_S
            assert ask(boss, f"{three.url}/v1/access/rules", "POST", rule)[0] == 201
            assert live_after_s(cluster, shop, "/v1/topics/t", 200) < LIVE_S

            three.kill()
            three.begin_start()
            three.wait_until_ready()
            assert ask(shop, f"{three.url}/v1/topics")[0] == 200, "a node that is ready has the rules"

            three.send(signal.SIGSTOP)
            began = time.monotonic()
            added = penstock(boss, one.url, "acl add token:shop --allow read --topic t --id late --json")
            assert orjson.loads(added.stdout)["behind"] == [3], added
            assert "Not confirmed by node 3" in added.stderr
            assert SERVED_S - 0.1 < time.monotonic() - began < SERVED_S + 5
            three.send(signal.SIGCONT)
            until(lambda: ask(boss, f"{three.url}/v1/access/rules/late", "DELETE")[0] in (200, 404))

            os.kill(zookeeper.pid, signal.SIGSTOP)
            status, problem = ask(boss, f"{one.url}/v1/access/rules/r", "DELETE")
            assert (status, problem["retryable"]) in ((503, True), (504, True)), problem
            for node in cluster.nodes.values():
                assert ask(shop, f"{node.url}/v1/topics/t")[0] == 200, "the last rules hold"
            os.kill(zookeeper.pid, signal.SIGCONT)
            until(lambda: ask(boss, f"{one.url}/v1/access/rules/r", "DELETE")[0] in (200, 404))
            live_after_s(cluster, shop, "/v1/topics/t", 403)  # a new session may be needed first
        finally:
            for node in cluster.nodes.values():
                node.kill()
