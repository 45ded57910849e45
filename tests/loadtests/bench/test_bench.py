"""The bench against real servers, with tiny counts: tests that it runs, checks and cleans up, not its figures."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


def bench(tmp_path, *options):
    files = ["--json", str(tmp_path / "bench.json"), "--markdown", str(tmp_path / "bench.md")]
    data = tmp_path / "data with blank"
    data.mkdir()
    command = [sys.executable, "-m", "loadtests.bench.__main__", "--quick", "--directory", str(data), *files, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(data.iterdir()), "temporary data are left"
    return done.stdout, json.loads((tmp_path / "bench.json").read_text())


def rows_of(document):
    return {row["key"]: row for row in document["rows"]}


@pytest.mark.parametrize("generator", [[], pytest.param(["--no-h2load"], marks=pytest.mark.long)])
def test_a_produce_case_is_measured_beside_the_bare_function(tmp_path, generator):
    text, document = bench(tmp_path, "--only", "single", "--rounds", "1", "--round-s", "0.05", *generator)
    rows = rows_of(document)
    slow = {"single-acks-all-2ms", "single-acks-all-10ms"}
    assert set(rows) == {"single-bare", "single-acks-1", "single-acks-all"} | slow
    assert all(row["requests_per_s"] > 0 and row["latency"]["count"] > 0 for row in rows.values())
    assert rows["single-acks-1"]["ratio_to_bare"] > 0
    assert document["checked"] == 5
    assert rows["single-acks-all-10ms"]["latency"]["p50_ms"] > 10
    assert "acks=all, fdatasync + 10 ms" in text
    assert document["mismatches"] == []
    assert "stored is exactly what was acknowledged" in text


@pytest.mark.long
def test_fetches_are_looked_into_and_counted(tmp_path):
    _, document = bench(tmp_path, "--only", "fetch-json", "--rounds", "1", "--round-s", "0.05")
    assert rows_of(document)["fetch-json-penstock"]["records_per_s"] > 0
    assert document["mismatches"] == []


@pytest.mark.long
def test_deliveries_are_timed_by_a_generator_that_shows_what_it_can(tmp_path):
    text, document = bench(tmp_path, "--only", "delivery", "--round-s", "0.3")
    rows = rows_of(document)
    assert set(rows) == {"delivery-1", "delivery-all"}
    assert all(row["loop"] == "open" and row["latency"]["count"] == 300 for row in rows.values())
    assert "proved against the bare function" in text
