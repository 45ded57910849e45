"""A real Prometheus with the rules of deploy/prometheus at nodes of a test.

Each minute of the rules is a second here.
"""

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import yaml

from tests.e2e.calls import call
from tests.e2e.cluster.test_cluster import until
from tests.operations.test_alerts import RULES

WHY_NO_PROMETHEUS = None if shutil.which("prometheus") else "prometheus is missing (Debian: prometheus)"
AN_HOUR = "> 3600"  # of a threshold
SHORTER = {"d": "1440s", "h": "60s", "m": "1s"}


def shorten_durations(rules: str) -> str:
    """Returns the rules with a second for each minute, also in a threshold of an hour."""
    rules = rules.replace(AN_HOUR, "> 60")
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

    def exemplars(self, query: str) -> list[str]:
        """Returns the traces that the samples of a query name."""
        rows = call(f"{self.url}/api/v1/query_exemplars?query={quote(query)}&start=0&end=9999999999")["data"]
        return [exemplar["labels"]["trace_id"] for row in rows for exemplar in row["exemplars"]]

    def has_series(self, query: str) -> bool:
        """Returns whether a query of the dashboard gives anything for all clusters and nodes."""
        query = query.replace("$cluster", ".*").replace("$instance", ".*").replace("$__rate_interval", "30s")
        return bool(call(f"{self.url}/api/v1/query?query={quote(query)}")["data"]["result"])

    def wait_for(self, *names: str) -> None:
        until(lambda: set(names) <= self.alerts())

    def wait_quiet(self) -> None:
        until(lambda: not self.alerts())


@contextmanager
def running_prometheus(directory: Path, urls: Sequence[str]) -> Iterator[Prometheus]:
    directory.mkdir()
    (directory / "rules.yml").write_text(shorten_durations(RULES.read_text()))
    targets = [urlsplit(url).netloc for url in urls]
    scrape = {"job_name": "penstock", "static_configs": [{"targets": targets, "labels": {"cluster": "c"}}]}
    scrape["scheme"] = urlsplit(urls[0]).scheme
    config = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "400ms", "evaluation_interval": "500ms"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [scrape],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--enable-feature=exemplar-storage"]
    flags += [f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data"]
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
