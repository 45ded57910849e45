"""`make loadtest` from its command to its screen, for some seconds."""

import csv
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


def test_every_hot_path_is_used_without_a_failure(tmp_path):
    command = [sys.executable, "-m", "loadtests.locust", "--seconds", "3", "--users", "11", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No request failed." in done.stdout
    rows = {row["Name"]: int(row["Request Count"]) for row in csv.DictReader((tmp_path / "load_stats.csv").open())}
    for form in ("KeyedJson", "UnkeyedJson", "Ndjson", "Raw", "StoredBatch", "Http2Raw"):
        assert rows[f"produce {form}"] > 0
    for name in (
        "long poll JsonPoll",
        "long poll NdjsonPoll",
        "long poll Reconnecting",
        "event stream",
        "fetch SlowReader",
    ):
        assert rows[name] > 0
    assert "<html" in (tmp_path / "load.html").read_text().lower()
