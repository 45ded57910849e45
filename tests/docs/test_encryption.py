"""The commands of docs/operate/encryption.md, as the page prints them; only the addresses differ."""

import re
import subprocess
from pathlib import Path

import pytest

from loadtests.cluster.zookeeper import TlsFiles
from tests.docs.console import blocks
from tests.e2e.cluster.test_cluster import Cluster
from tests.replication.zookeeper_process import WHY_NOT, is_installed, zookeeper_process

PAGE = "operate/encryption.md"
CLUSTER = "0d7edbeec79a4a11ae3000ee0c42423a"
PRINTED = ["keys", "would change", "keys", "changed", "new secret"]


def run(script: str, directory: Path) -> str:
    ended = subprocess.run(["bash", "-euc", script], cwd=directory, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


@pytest.mark.e2e
@pytest.mark.skipif(not is_installed(), reason=WHY_NOT)
def test_a_cluster_runs_with_the_files_that_the_page_makes_and_its_commands_secure_it(tmp_path):
    *making, secure, rotate = [block.replace("10.0.0.11", "127.0.0.1") for block in blocks(PAGE, "sh")]
    assert len(making) == 4
    run("\n".join(making), tmp_path)
    key = tmp_path / "node1.key"
    assert key.stat().st_mode & 0o077 == 0
    files = {"tls-ca": tmp_path / "ca.pem", "tls-cert": tmp_path / "node1.pem", "tls-key": key}
    settings = {f"{prefix}-{name}": path for prefix in ("internal", "zookeeper") for name, path in files.items()}
    settings |= {"internal-tls": "require", "zookeeper-login-file": tmp_path / "zookeeper.login", "cluster-id": CLUSTER}
    tls = TlsFiles(tmp_path / "zookeeper1-keystore.pem", tmp_path / "ca.pem")
    with zookeeper_process(tmp_path / "zookeeper", tls=tls) as zookeeper:
        cluster = Cluster(tmp_path, f"127.0.0.1:{zookeeper.tls_port}", 1, **settings)
        try:
            cluster.start()
            script = (secure + rotate).replace(":2281", f":{zookeeper.tls_port}")
            script = script.replace("rotate-secret", "rotate-secret --pause 1")
            shown = run(script, tmp_path)
            assert cluster.nodes[1].stop() == 0
        finally:
            cluster.nodes[1].kill()
    at = 0
    for text in PRINTED:
        at = shown.index(text, at)
    assert re.search(r"^changed +[1-9]", shown, re.MULTILINE)
