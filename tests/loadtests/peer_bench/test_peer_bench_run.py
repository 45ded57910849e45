"""The bench from its command to its tables, with Penstock alone: the other servers are not installed in CI."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load is not installed: apt-get install nghttp2-client")
def test_every_work_of_penstock_is_measured_and_its_logs_are_right(tmp_path):
    report, page = tmp_path / "report.json", tmp_path / "report.md"
    command = [sys.executable, "-m", "loadtests.peer_bench", "--quick", "--servers", "penstock", "--round-s", "0.05"]
    command += ["--cache", str(tmp_path), "--json", str(report), "--markdown", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert found["problems"] == []
    assert {row["cell"]["work"]["key"] for row in found["rows"]} >= {
        "batch",
        "single",
        "delivery",
        "read",
        "read-single",
    }
    assert all(one["records"] > 0 for row in found["rows"] for one in row["rounds"])
    assert "| 1 record of 100 B a request, 64 in flight | HTTP/2 " in page.read_text()


def test_an_unknown_server_is_named():
    command = [sys.executable, "-m", "loadtests.peer_bench", "--servers", "pulsar"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 2
    assert "unknown servers: pulsar" in done.stderr
