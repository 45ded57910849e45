"""The bench from its command to its tables, with Penstock alone: the other servers are not installed in CI."""

import json
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from loadtests.peer_bench.__main__ import main
from tests.architecture.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load is not installed: apt-get install nghttp2-client")
def test_every_kind_of_work_of_penstock_is_measured_and_its_logs_are_right(tmp_path):
    report, page = tmp_path / "report.json", tmp_path / "report.md"
    command = [sys.executable, "-m", "loadtests.peer_bench", "--quick", "--servers", "penstock", "--round-s", "0.05"]
    command += ["--only", "single-fsync,keys-batch,delivery,read"]
    command += ["--cache", str(tmp_path), "--json", str(report), "--markdown", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert found["problems"] == []
    forms = {(row["cell"]["work"]["key"], row["cell"]["form"]) for row in found["rows"]}
    assert forms >= {("single-fsync", "HTTP/2"), ("keys-batch", "sequences"), ("delivery", ""), ("read", "JSON")}
    assert all(one["records"] > 0 for row in found["rows"] for one in row["rounds"])
    assert "| the same, fsync | HTTP/2 " in page.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--servers", "pulsar"], "unknown servers: pulsar"), (["--only", "writing"], "unknown works: writing")],
)
def test_an_unknown_server_or_work_is_named(options, message):
    done = CliRunner().invoke(main, options)
    assert done.exit_code == 2
    assert message in done.output
