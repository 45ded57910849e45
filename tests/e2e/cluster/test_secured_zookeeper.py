"""A node and the command against a ZooKeeper with TLS, login and ACLs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.e2e.cluster.test_cluster import Cluster
from tests.e2e.node_process import refused_start
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]

LOGIN = "penstock:0123456789abcdef0123456789abcdef"


def run(name: str, settings: dict[str, object], address: str, *flags: str) -> str:
    """Run a command of `penstock coordination` with the node's settings in the environment; return what it prints."""
    names = {f"PENSTOCK_{name.upper().replace('-', '_')}": str(value) for name, value in settings.items()}
    command = [sys.executable, "-m", "penstock.cli.main", "coordination", name, "--coordination", address, *flags]
    ended = subprocess.run(command, env={**os.environ, **names}, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    return " ".join(ended.stdout.split())


def test_a_cluster_of_keys_for_its_login_refuses_the_start_of_another_in_one_line(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    client = authority.issue("client", "DNS:node1")
    login, other = tmp_path / "login", tmp_path / "other"
    login.write_text(LOGIN)
    other.write_text(LOGIN[:-1] + "0")
    settings: dict[str, object] = {
        "zookeeper-tls-ca": authority.ca,
        "zookeeper-tls-cert": client.cert,
        "zookeeper-tls-key": client.key,
        "zookeeper-login-file": login,
    }
    tls = authority.issue_for_zookeeper("server", "IP:127.0.0.1")
    with zookeeper_process(tmp_path / "zookeeper", tls=tls) as zookeeper:
        cluster = Cluster(tmp_path, f"127.0.0.1:{zookeeper.tls_port}", 1, **settings, **{"log-level": "debug"})
        try:
            cluster.start()
            expected = run("secure", settings, cluster.coordination, "--dry-run")
            assert expected.startswith("keys ")
            assert run("secure", settings, cluster.coordination) == expected.replace("would change", "changed")
            assert run("secure", settings, cluster.coordination, "--dry-run").endswith("would change 0")
            own = {**settings, "coordination": cluster.coordination, "store": (tmp_path / "store").as_uri(), "port": 0}
            refused = {**own, "zookeeper_login_file": other, "node_id": 2, "data_dir": tmp_path / "node-2"}
            del refused["zookeeper-login-file"]
            code, printed, error = refused_start(**refused)
            last = error.splitlines()[-1]
            assert (code, printed) == (1, "")
            assert last.startswith("penstock: ZooKeeper denies this node its keys")
            assert "check zookeeper_login_file" in last
            assert cluster.nodes[1].stop() == 0
            for text in (cluster.nodes[1].errors, error):
                assert LOGIN.partition(":")[2] not in text
        finally:
            cluster.nodes[1].kill()
