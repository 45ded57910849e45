"""The commands of docs/operate/encryption.md, as the page prints them; only the addresses differ."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.cluster.zookeeper import TlsFiles
from tests.docs.console import blocks
from tests.e2e.cluster.test_cluster import Cluster
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process
from tests.waiting import wait_until

PAGE = "operate/encryption.md"
CLUSTER = "0d7edbeec79a4a11ae3000ee0c42423a"
WAIT_S = 60
PRINTED = ["keys", "would change", "keys", "changed", "new secret"]


def run(script: str, directory: Path) -> str:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # of the page's commands
    ended = subprocess.run(
        ["bash", "-euc", script], cwd=directory, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def reports(errors: str, message: str, file: str) -> bool:
    return any(message in line and file in line for line in errors.splitlines())


@pytest.mark.e2e
@pytest.mark.skipif(not is_installed(), reason=WHY_NOT)
def test_a_cluster_runs_with_the_files_that_the_page_makes_renews_them_and_is_secured_by_its_commands(tmp_path):
    *making, secure, rotate = [block.replace("10.0.0.11", "127.0.0.1") for block in blocks(PAGE, "sh")]
    assert len(making) == 4
    run("\n".join(making), tmp_path)
    key = tmp_path / "node1.key"
    assert key.stat().st_mode & 0o077 == 0
    files = {"tls-ca": tmp_path / "ca.pem", "tls-cert": tmp_path / "node1.pem", "tls-key": key}
    settings = {f"{prefix}-{name}": path for prefix in ("internal", "zookeeper") for name, path in files.items()}
    settings |= {"internal-tls": "require", "zookeeper-login-file": tmp_path / "zookeeper.login", "cluster-id": CLUSTER}
    settings["reload-check-ms"] = 100
    tls = TlsFiles(tmp_path / "zookeeper1-keystore.pem", tmp_path / "ca.pem")
    with zookeeper_process(tmp_path / "zookeeper", tls=tls) as zookeeper:
        cluster = Cluster(tmp_path, f"127.0.0.1:{zookeeper.tls_port}", 1, **settings)
        try:
            cluster.start()
            node = cluster.nodes[1]
            run(making[2], tmp_path)
            wait_until(lambda: reports(node.errors, "files reloaded", "node1.pem"))
            (tmp_path / "node1.key").write_bytes((tmp_path / "zookeeper1.key").read_bytes())
            wait_until(lambda: reports(node.errors, "changed files rejected", "node1.pem"))
            run(making[2], tmp_path)
            script = (secure + rotate).replace(":2281", f":{zookeeper.tls_port}")
            script = script.replace("rotate-secret", "rotate-secret --pause 1")
            shown = run(script, tmp_path)
            assert node.stop() == 0
        finally:
            cluster.nodes[1].kill()
    at = 0
    for text in PRINTED:
        at = shown.index(text, at)
    assert re.search(r"^changed +[1-9]", shown, re.MULTILINE)
