"""`python -m tests.operations.dashboard`: writes deploy/grafana/dashboards/penstock.json from the table of its panels.

The table has PromQL without variables; `filled` puts them into each selector. RATE is the interval of Grafana.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.docs.pages import ROOT

FILE = ROOT / "deploy" / "grafana" / "dashboards" / "penstock.json"
ON = 'cluster=~"$cluster",instance=~"$instance"'
SELECTOR = re.compile(r"\b(up|(?:penstock|process)_[a-z_]+)(?:\{(?P<labels>[^}]*)\})?")
P99 = "histogram_quantile(0.99, sum by (le, {by}) (rate(penstock_{metric}_bucket[RATE])))"
NONE = ' or label_replace(vector(0), "{label}", "none", "", "")'  # a healthy node has no such series
TROUBLE = "Trouble: all of it is 0 on a healthy cluster"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    title: str
    unit: str
    legend: str
    query: str
    more: dict[str, str] = {}  # further queries by legend  # noqa: RUF012 - never changed

    @property
    def queries(self) -> dict[str, str]:
        return {legend: filled(query) for legend, query in {self.legend: self.query, **self.more}.items()}


SECTIONS = {
    TROUBLE: [
        Panel("Nodes that do not answer", "short", "", 'count(up{job="penstock"} == 0) or vector(0)'),
        Panel("Partitions without a leader", "short", "", "max(penstock_leaderless_partitions) or vector(0)"),
        Panel("Partitions that refuse acks=all", "short", "", "sum(penstock_under_min_isr_partitions)"),
        Panel("Partitions with replicas out of sync", "short", "", "sum(penstock_under_replicated_partitions)"),
        Panel("Replicas on failed disks", "short", "", "sum(penstock_offline_replicas)"),
        Panel("Segments with damaged records", "short", "", "sum(penstock_quarantined_segments)"),
    ],
    "Traffic": [
        Panel("Records in", "cps", "records", "sum(rate(penstock_topic_records_in_total[RATE]))"),
        Panel(
            *("Bytes", "binBps", "in", "sum(rate(penstock_topic_bytes_in_total[RATE]))"),
            {"out": "sum(rate(penstock_topic_bytes_out_total[RATE]))"},
        ),
        Panel("Requests", "reqps", "{{operation}}", "sum by (operation) (rate(penstock_requests_total[RATE]))"),
        Panel(
            *("Requests that failed", "reqps", "{{operation}} {{status}}"),
            'sum by (operation, status) (rate(penstock_requests_total{status=~"429|5.."}[RATE]))'
            + NONE.format(label="operation"),
        ),
        Panel(
            *("Topics with most data", "binBps", "{{topic}}"),
            "topk(10, sum by (topic) (rate(penstock_topic_bytes_in_total[RATE])))",
        ),
        Panel("Lag of groups", "short", "{{group}}", "topk(10, max by (group) (penstock_group_lag_records))"),
    ],
    "Time": [
        Panel("Stages of a produce, p99", "s", "{{stage}}", P99.format(by="stage", metric="stage_duration_seconds")),
        Panel(*("Requests, p99", "s", "{{operation}}"), P99.format(by="operation", metric="request_duration_seconds")),
        Panel(
            *("Delay of the event loop, p99", "s", "{{instance}}"),
            P99.format(by="instance", metric="event_loop_lag_seconds"),
        ),
        Panel(
            *("Use of the event loops", "percentunit", "{{instance}}"),
            "sum by (instance) (rate(penstock_event_loop_cpu_seconds_total[RATE]))",
        ),
    ],
    "Disk and store": [
        Panel(
            *("Free space, and in four hours", "bytes", "{{instance}} {{directory}}"),
            "penstock_data_directory_free_bytes",
            {"in 4 h: {{instance}}": "predict_linear(penstock_data_directory_free_bytes[1h], 4 * 3600)"},
        ),
        Panel("Age of what is not in the store", "s", "{{instance}}", "max by (instance) (penstock_tier_lag_seconds)"),
        Panel("Flushes", "cps", "{{instance}}", "sum by (instance) (rate(penstock_flushes_total[RATE]))"),
        Panel(
            *("Reads that missed the page cache", "cps", "{{instance}}"),
            "sum by (instance) (rate(penstock_page_cache_misses_total[RATE]))",
        ),
    ],
    "Processes": [
        Panel("Memory", "bytes", "{{instance}}", "sum by (instance) (process_resident_memory_bytes)"),
        Panel(
            *("Open files", "percentunit", "{{instance}}"),
            "max by (instance) (process_open_fds / process_max_fds)",
        ),
        Panel(
            *("Requests that wait", "short", "requests", "sum(penstock_requests_in_flight)"),
            {"long polls": "sum(penstock_long_polls)"},
        ),
        Panel(
            *("Background work that failed", "short", "{{task}}"),
            "sum by (task) (increase(penstock_background_failures_total[1h]))" + NONE.format(label="task"),
        ),
    ],
}


def filled(query: str) -> str:
    """Return a query whose selectors ask for the chosen cluster and instances."""

    def chosen(match: re.Match[str]) -> str:
        return f"{match[1]}{{{','.join(filter(None, (match['labels'], ON)))}}}"

    return SELECTOR.sub(chosen, query).replace("RATE", "$__rate_interval")


def queries() -> Iterator[tuple[str, str]]:
    """Yield each query with the title of its panel."""
    for panels in SECTIONS.values():
        for panel in panels:
            yield from ((panel.title, query) for query in panel.queries.values())


def dashboard() -> str:
    """Return the file, for Grafana 10 and later."""
    panels: list[dict[str, Any]] = []
    top = 0
    for section, members in SECTIONS.items():
        width, height = (4, 4) if section == TROUBLE else (12, 8)
        panels.append({"type": "row", "title": section, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}})
        for index, panel in enumerate(members):
            row, column = divmod(index * width, 24)
            position = {"x": column, "y": top + 1 + row * height, "w": width, "h": height}
            panels.append(_plain(panel, section == TROUBLE) | {"gridPos": position})
        top += 1 + -(-len(members) * width // 24) * height
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        _variable("cluster", 'label_values(up{job="penstock"}, cluster)'),
        _variable("instance", 'label_values(up{job="penstock",cluster=~"$cluster"}, instance)'),
    ]
    document = {
        "title": "Penstock",
        "uid": "penstock",
        "schemaVersion": 39,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": variables},
        "panels": [panel | {"id": number} for number, panel in enumerate(panels, 1)],
    }
    return json.dumps(document, indent=1) + "\n"


def _plain(panel: Panel, is_trouble: bool) -> dict[str, Any]:
    steps = [{"color": "green", "value": None}, *([{"color": "red", "value": 1}] if is_trouble else [])]
    return {
        "type": "stat" if is_trouble else "timeseries",
        "title": panel.title,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}},
        "targets": [
            {"refId": chr(ord("A") + number), "expr": query, "legendFormat": legend}
            for number, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    all_of_it = {"includeAll": True, "allValue": ".*", "multi": True, "current": {"text": "All", "value": "$__all"}}
    return {"name": name, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2, **all_of_it}


if __name__ == "__main__":
    FILE.write_text(dashboard())
