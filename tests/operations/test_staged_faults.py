"""A staged fault is named with its cause by the overview and by `penstock cluster explain`; its alert alone pages."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli.main import main
from tests.disk_faults import CannotAttach, CannotMount
from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import until
from tests.e2e.node_process import running_process
from tests.operations.prometheus import WHY_NO_PROMETHEUS, running_prometheus
from tests.operations.staged_cluster_faults import CLUSTER_FAULTS
from tests.operations.staged_faults import (
    ASIDE,
    FAULTS,
    WITHOUT_CODEC,
    Fault,
    damage,
    dead_letters,
    produce,
    remove_metadata,
    stick_group,
)
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = pytest.mark.e2e
IGNORED = {"disk_full_soon", "disk_full"}  # of the disk of the machine that runs the tests
QUIET_S = 5  # five minutes of the rules


def findings(url: str) -> dict[str, str]:
    return {one["code"]: one["found"] for one in call(f"{url}/v1/overview")["findings"]}


def explain(url: str, *words: str) -> str:
    command = [sys.executable, "-m", "penstock.cli.main", *words, "--url", url]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ), timeout=120).stdout


def test_a_node_with_four_faults_names_each(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with running_process(tmp_path) as node:
        produce(node, ASIDE)
        node.stop()
    remove_metadata(tmp_path / "data")
    with running_process(tmp_path, scrub_interval_ms=100, environment=WITHOUT_CODEC) as node:
        stick_group(node)
        damage(node, tmp_path / "data")
        expected = {"group_stuck", "records_damaged", "topics_set_aside", "plain_codec"}
        until(lambda: findings(node.url).keys() - IGNORED == expected)
        assert main(["cluster", "explain", "--url", node.url]) == 0
        text = capfd.readouterr().out
        says = {fault.code: fault.says for fault in FAULTS if fault.code in expected and not fault.is_of_group}
        assert [code for code, words in says.items() if words not in text] == []


def test_a_subscription_whose_receiver_answers_500_is_named_by_its_dead_letters(tmp_path: Path) -> None:
    with dead_letters(tmp_path) as staged:
        staged.begin()
        until(lambda: findings(staged.urls[0]).get("dead_letters") == "3 records became dead letters")


def assert_named(fault: Fault, directory: Path) -> None:
    """Stages a fault, and waits until the overview, `penstock explain` and its alert name it. Nothing else pages."""
    with fault.stage(directory) as staged:
        url = staged.urls[0]
        with running_prometheus(directory / "prometheus", staged.urls) as prometheus:
            until(lambda: prometheus.has_series("up == 1"))
            staged.begin()
            until(lambda: fault.says in findings(url).get(fault.code, ""))
            assert findings(url).keys() - IGNORED <= {fault.code, "plain_codec", *fault.also}
            words = ("topic", "explain", fault.topic) if fault.topic else ("cluster", "explain")
            if not fault.is_of_group:
                assert fault.says in explain(url, *words)
            prometheus.wait_for(fault.name_of_alert)
            time.sleep(QUIET_S)
            assert prometheus.alerts("page") - {"DiskFull"} == fault.pages - {"DiskFull"}


@pytest.mark.long
@pytest.mark.skipif(WHY_NO_PROMETHEUS is not None, reason=str(WHY_NO_PROMETHEUS))
@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.code) for fault in FAULTS])
def test_a_staged_fault_is_named_and_wakes_people_for_itself(fault: Fault, tmp_path: Path) -> None:
    try:
        assert_named(fault, tmp_path)
    except (CannotAttach, CannotMount) as error:
        pytest.skip(str(error))


@pytest.mark.long
@pytest.mark.skipif(WHY_NO_PROMETHEUS is not None, reason=str(WHY_NO_PROMETHEUS))
@pytest.mark.skipif(not is_installed(), reason=WHY_NOT)
@pytest.mark.parametrize("name", CLUSTER_FAULTS)
def test_a_staged_fault_of_a_cluster_is_named_and_wakes_people_for_itself(name: str, tmp_path: Path) -> None:
    assert_named(CLUSTER_FAULTS[name], tmp_path)
