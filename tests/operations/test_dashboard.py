"""deploy/grafana: the dashboard is that of its table, and its queries are PromQL over metrics that nodes have."""

import re
import shutil
import subprocess

import pytest
import yaml

from tests.operations.dashboard import FILE, dashboard, filled, queries
from tests.operations.test_alerts import METRICS


def unknown_metrics(query: str) -> list[str]:
    named = re.findall(r"\b(?:penstock|process)_[a-z_]+", query)
    return [name for name in named if f"| `{name.removesuffix('_bucket')}` |" not in METRICS]


def test_the_file_is_that_of_the_table():
    assert FILE.read_text() == dashboard(), "write it again: python -m tests.operations.dashboard"


@pytest.mark.parametrize(("title", "query"), list(queries()))
def test_a_panel_asks_for_metrics_that_a_node_has(title, query):
    assert unknown_metrics(query) == [], title


def test_a_panel_of_a_metric_that_no_node_has_is_found():
    assert unknown_metrics(filled("rate(penstock_no_such_total[RATE]) / penstock_topics")) == ["penstock_no_such_total"]


def test_each_selector_has_the_variables():
    query = 'sum by (topic) (rate(penstock_a_total{status="5.."}[RATE])) / up'
    chosen = 'cluster=~"$cluster",instance=~"$instance"'
    expected = f'sum by (topic) (rate(penstock_a_total{{status="5..",{chosen}}}[$__rate_interval])) / up{{{chosen}}}'
    assert filled(query) == expected


def test_the_queries_are_promql(tmp_path):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing (Debian: prometheus)")
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, (_, query) in enumerate(queries())
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    check = subprocess.run(["promtool", "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr
