"""Locust against a real node: some seconds of mixed load in which every read record is checked."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.host.admin_client import AdminClient
from loadtests.host.servers import penstock

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

LOCUSTFILE = Path(__file__).parents[3] / "loadtests" / "locust" / "locustfile.py"
RUNS_S = (5, 20)  # the second if a busy machine did not come to every kind of request in the first
PRODUCES = ("produce application/json acks=1", "produce application/x-ndjson acks=all")
READS = ("long poll application/json", "long poll application/x-ndjson", "from producer to long poll")


@pytest.mark.long
def test_producers_and_checking_consumers_meet_no_fault(tmp_path):
    with penstock(tmp_path) as node:
        for run_s in RUNS_S:
            command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"]
            command += ["-u", "8", "-r", "8", "-t", f"{run_s}s", "--host", node.url, "--csv", str(tmp_path / "load")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stdout + done.stderr
            rows = {row["Name"]: row for row in csv.DictReader((tmp_path / "load_stats.csv").open())}
            assert {row["Failure Count"] for row in rows.values()} == {"0"}
            assert " 0 faults" in done.stderr
            if all(name in rows and int(rows[name]["Request Count"]) for name in (*PRODUCES, *READS)):
                break
        else:
            pytest.fail(f"not every kind of request was made: {rows.keys()}")
        topics = AdminClient(node.url).request("GET", "/v1/topics")[1]
    assert topics == b'{"topics":[]}', "the run's topic is deleted when all was well"
