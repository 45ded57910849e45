"""A real Prometheus at a real cluster: no alert while all is well, and for each staged fault the alerts it is for.

Each minute of the rules is a second here.
"""

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from tests.e2e.cluster.test_cluster import Cluster, running_cluster, until
from tests.e2e.lifecycle.test_shards import call
from tests.operations.dashboard import queries
from tests.operations.test_alerts import RULES
from tests.replication.zookeeper_process import WHY_NOT, is_installed

pytestmark = [
    pytest.mark.long,
    pytest.mark.e2e,
    pytest.mark.skipif(not is_installed(), reason=WHY_NOT),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is missing"),
]

WITHOUT_FAULTS = {"Requests that failed", "Background work that failed"}  # panels that need a fault
SHORTER = {"d": "1440s", "h": "60s", "m": "1s"}


def shorten_durations(rules: str) -> str:
    """Returns the rules with a second for each minute."""
    return re.sub(r"\b(\d+)([dhm])\b", lambda match: f"{int(match[1]) * int(SHORTER[match[2]][:-1])}s", rules)


class Prometheus:
    """A server that scrapes nodes twice a second."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def alerts(self, severity: str | None = None) -> set[str]:
        """Returns the names of the alerts that fire now."""
        found = call(f"{self.url}/api/v1/alerts")["data"]["alerts"]
        return {
            alert["labels"]["alertname"].removeprefix("Penstock")
            for alert in found
            if alert["state"] == "firing" and severity in (None, alert["labels"]["severity"])
        }

    def has_series(self, query: str) -> bool:
        """Returns whether a query of the dashboard gives anything for all clusters and nodes."""
        query = query.replace("$cluster", ".*").replace("$instance", ".*").replace("$__rate_interval", "30s")
        return bool(call(f"{self.url}/api/v1/query?query={quote(query)}")["data"]["result"])

    def wait_for(self, *names: str) -> None:
        until(lambda: set(names) <= self.alerts())

    def wait_quiet(self) -> None:
        until(lambda: not self.alerts())


@contextmanager
def running_prometheus(directory: Path, nodes: list[str]) -> Iterator[Prometheus]:
    directory.mkdir()
    (directory / "rules.yml").write_text(shorten_durations(RULES.read_text()))
    scrape = {"job_name": "penstock", "static_configs": [{"targets": nodes, "labels": {"cluster": "c"}}]}
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "400ms", "evaluation_interval": "500ms"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [scrape],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = [f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data"]
    with (directory / "log").open("wb") as log:
        server = subprocess.Popen(
            ["prometheus", *flags, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
        )
    try:
        prometheus = Prometheus(port)
        until(lambda: prometheus.alerts() is not None)
        yield prometheus
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as cluster:
        cluster.create("t", 3, min_insync_replicas=2)
        yield cluster


def produce(cluster: Cluster, node: int = 1) -> None:
    call(f"{cluster.nodes[node].url}/v1/topics/t/records", "POST", {"records": [{"value": 1}]})


def test_alerts_fire_for_their_faults_and_for_no_other(cluster, tmp_path):
    for node in cluster.nodes.values():  # they keep their ports over a restart
        node.settings["port"] = int(node.url.rpartition(":")[2])
    places = [node.url.removeprefix("http://") for node in cluster.nodes.values()]
    with running_prometheus(tmp_path / "prometheus", places) as prometheus:
        end = time.monotonic() + 40
        while time.monotonic() < end:
            produce(cluster)
            time.sleep(0.2)
            assert prometheus.alerts() == set()

        url = f"{cluster.nodes[1].url}/v1/groups/idle/offsets"
        call(url, "PUT", {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]})
        prometheus.wait_for("GroupStuck")
        no_data = {title for title, query in queries() if not prometheus.has_series(query)}
        assert no_data <= WITHOUT_FAULTS, "each other panel shows something"
        assert prometheus.alerts() == {"GroupStuck"}
        call(f"{cluster.nodes[1].url}/v1/groups/idle", "DELETE")
        prometheus.wait_quiet()

        cluster.nodes[3].kill()
        prometheus.wait_for("NodeDown", "NodesMissing", "UnderReplicated")
        assert prometheus.alerts("page") == {"NodeDown"}
        cluster.nodes[2].kill()
        prometheus.wait_for("UnderMinIsr")
        assert prometheus.alerts("page") <= {"NodeDown", "UnderMinIsr", "NoController", "LeaderlessPartitions"}
        for number in (2, 3):
            cluster.nodes[number].begin_start()
        for number in (2, 3):
            cluster.nodes[number].wait_until_ready()
        prometheus.wait_quiet()

        cluster.nodes[3].stop()
        for metadata in cluster.nodes[3].data.glob("**/topic.json"):
            metadata.rename(metadata.with_name("elsewhere"))
        cluster.nodes[3].begin_start()
        prometheus.wait_for("TopicsSetAside")
        assert prometheus.alerts("page") <= {"TopicsSetAside", "NodeDown"}
