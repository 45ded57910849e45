"""The bench from its command to its tables, without the peers, which are not installed in CI."""

import json
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from loadtests.bench.__main__ import main
from tests.architecture.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load is not installed: apt-get install nghttp2-client")
def test_every_kind_of_work_of_penstock_is_measured_and_its_logs_are_right(tmp_path):
    report, page = tmp_path / "report.json", tmp_path / "report.md"
    command = [sys.executable, "-m", "loadtests.bench", "--quick", "--servers", "penstock,penstock-10ms,bare"]
    command += ["--only", "single-fsync,keys-batch,delivery,read", "--round-s", "0.05"]
    command += ["--cache", str(tmp_path), "--json", str(report), "--markdown", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert found["problems"] == []
    forms = {(row["cell"]["work"]["key"], row["cell"]["form"]) for row in found["rows"]}
    assert forms >= {("single-fsync", "HTTP/2"), ("keys-batch", "sequences"), ("delivery", ""), ("read", "JSON")}
    assert all(one["records"] > 0 for row in found["rows"] for one in row["rounds"])
    slow = next(row for row in found["rows"] if row["cell"]["server"] == "penstock-10ms")
    assert slow["rounds"][0]["p50_ms"] > 10
    assert "| the same, fsync | HTTP/2 " in page.read_text()


@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load is not installed: apt-get install nghttp2-client")
def test_a_node_is_measured_beside_the_bare_function(tmp_path):
    report, data = tmp_path / "report.json", tmp_path / "data with blank"
    data.mkdir()
    command = [sys.executable, "-m", "loadtests.bench", "--quick", "--servers", "penstock,bare", "--only", "single"]
    command += ["--round-s", "0.05", "--directory", str(data), "--json", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(data.iterdir()), "temporary data are left"
    found = json.loads(report.read_text())
    cells = {(row["cell"]["server"], row["cell"]["form"]) for row in found["rows"]}
    assert cells == {(server, form) for server in ("penstock", "bare") for form in ("HTTP/2", "HTTP/1.1")}
    assert found["problems"] == []
    assert "each log has exactly the acknowledged records" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--servers", "pulsar"], "unknown servers: pulsar"), (["--only", "writing"], "unknown works: writing")],
)
def test_an_unknown_server_or_work_is_named(options, message):
    done = CliRunner().invoke(main, options)
    assert done.exit_code == 2
    assert message in done.output
