"""`make cluster`: the commands that it prints work as printed, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtests.cluster.nodes import ROOT
from tests.e2e.cluster.test_cluster import until
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not is_installed(), reason=WHY_NOT)]

STOP_S = 60.0


@contextmanager
def made_cluster(temporary: Path) -> Iterator[list[str]]:
    """Run it; return the printed commands, one a line."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "loadtests.cluster"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line.startswith("Ctrl-C"):
                    break
            yield [line.strip() for line in lines if line.startswith("  ")]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_S)


@pytest.mark.long
def test_what_it_says_to_try_works_and_nothing_stays(tmp_path: Path) -> None:
    with made_cluster(tmp_path) as (create, produce, describe, status, kill, again):
        until(lambda: "Created" in shell(create))
        assert '"base_offset":0' in shell(produce)
        assert "1,2,3" in shell(describe)
        assert shell(status).count("alive") == 3
        shell(kill)
        until(lambda: "gone" in shell(status))
        assert '"base_offset"' in shell(produce)
        with subprocess.Popen(again.removesuffix(" &"), shell=True, cwd=ROOT, start_new_session=True) as back:
            try:
                until(lambda: shell(status).count("alive") == 3)
            finally:
                os.killpg(back.pid, signal.SIGTERM)
    assert [*tmp_path.glob("penstock-cluster-*")] == []
    everything = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in everything


def shell(command: str) -> str:
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout
