"""`penstock.testing` in a user's project: pytest with the plugin, against a real node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

CONFTEST = 'pytest_plugins = ["penstock.testing.plugin"]\n'
TESTS = """
import pytest
from penstock.testing import wait_for_records

seen = []

@pytest.mark.parametrize("number", [1, 2])
def test_each_test_has_its_own_topics(penstock_client, penstock_prefix, number):
    topic = f"{penstock_prefix}rides"
    seen.append(topic)
    penstock_client.create_topic(topic)
    with penstock_client.producer() as producer:
        producer.send(topic, number)
    assert [record.json() for record in wait_for_records(penstock_client, topic)] == [number]
    assert len(set(seen)) == len(seen)

def test_a_filter_counts_the_records_that_pass(penstock_client, penstock_prefix):
    topic = f"{penstock_prefix}rides"
    penstock_client.create_topic(topic)
    with penstock_client.producer() as producer:
        for key in "aba":
            producer.send(topic, key, key=key)
    found = wait_for_records(penstock_client, topic, 2, filters=["key=a"])
    assert [record.key for record in found] == [b"a", b"a"]

def test_the_error_has_what_has_come(penstock_client, penstock_prefix):
    with pytest.raises(TimeoutError, match="has 0 of 1 records"):
        wait_for_records(penstock_client, f"{penstock_prefix}none", timeout_ms=0)
"""


def test_a_project_uses_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_rides.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=0", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr
