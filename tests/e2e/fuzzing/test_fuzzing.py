"""A real node answers as the contract says to all requests that schemathesis generates: valid, invalid and in any
order.

All its checks are enabled. PENSTOCK_FUZZING_S sets the time for each form (`make contract-long` uses ten minutes). To
replay a failure, run the printed command again with the printed seed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.fuzzing.ending_contract import ending_contract
from tests.e2e.fuzzing.hooks import PRODUCER_ID, TOPIC, TOPIC_PARTITIONS
from tests.e2e.node_process import ROOT, NodeProcess, running_process

SECONDS = int(os.environ.get("PENSTOCK_FUZZING_S", "8"))
CONFIG = Path(__file__).with_name("schemathesis.toml")

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


@pytest.mark.timeout(SECONDS + 180)
def test_a_node_keeps_its_contract(tmp_path: Path) -> None:
    with running_process(tmp_path, shards=2) as node:
        _prepare(node)
        ended = _fuzz(node, tmp_path, seed=3)
        assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
        assert '"level":"error"' not in node.errors, node.errors[-5000:]
        assert node.stop() == 0


def _fuzz(node: NodeProcess, directory: Path, seed: int) -> subprocess.CompletedProcess[str]:
    contract = directory / "contract.json"
    contract.write_text(json.dumps(ending_contract()))
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", CONFIG, "run", contract, "--url", node.url]
    options = ["--max-time", SECONDS, "--seed", seed, "--request-timeout", 60, "--generation-database", "none"]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.e2e.fuzzing.hooks", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [str(part) for part in (*command, *options, "--continue-on-failure", "--no-color")],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
    )


def _prepare(node: NodeProcess) -> None:
    body = json.dumps({"partitions": TOPIC_PARTITIONS}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{node.url}/v1/topics/{TOPIC}", body, headers, method="PUT")
    assert urllib.request.urlopen(request).status == 201
    taken = urllib.request.urlopen(urllib.request.Request(f"{node.url}/v1/producers", method="POST"))
    assert json.load(taken)["producer_id"] == PRODUCER_ID
