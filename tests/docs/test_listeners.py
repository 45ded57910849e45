"""The commands of docs/listeners.md, as the page prints them; only the addresses differ."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.console import blocks
from tests.e2e.node_process import running_process
from tests.waiting import wait_until

PAGE = "listeners.md"
WAIT_S = 60


def run(script: str, directory: Path, **environment: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-euc", script],
        cwd=directory,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.e2e
def test_a_client_with_the_certificate_that_the_page_makes_is_let_in_until_the_page_revokes_it(tmp_path, monkeypatch):
    *making, file, access, revoking = blocks(PAGE, "sh")
    shown = run("\n".join([*making, file]), tmp_path)
    token = re.search(r"penstock_\S+", shown)
    assert token is not None, shown
    listeners = (tmp_path / "listeners.toml").read_text().replace("8443", "0")
    for name in ("server.pem", "server.key", "clients-ca.pem", "clients.crl"):
        listeners = listeners.replace(f'"{name}"', f'"{tmp_path / name}"')
    (tmp_path / "listeners.toml").write_text(listeners)
    settings = {"tokens_file": tmp_path / "tokens.toml", "superusers": "token:ops", "reload_check_ms": 86_400_000}
    with running_process(tmp_path, listeners_file=tmp_path / "listeners.toml", **settings) as node:
        port = re.search(r"partners: https://127\.0\.0\.1:(\d+)", node._output.read_text())
        assert port is not None
        access = access.replace("8443", port[1]).replace("curl ", "curl --silent --show-error --fail ")
        done = run(access, tmp_path, PENSTOCK_URL=node.url, PENSTOCK_TOKEN=token[0])
        assert "may write" in done
        assert '"base_offset":0' in done, done
        run(revoking, tmp_path)
        node.begin_stop(signal.SIGHUP)
        curl = access[access.index("curl") :]
        command = ["bash", "-euc", curl]
        wait_until(lambda: subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60).returncode != 0)
        assert node.stop() == 0
