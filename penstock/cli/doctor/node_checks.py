"""Judges whether a running node is healthy, from its answers over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from penstock.admin.single_request import SingleRequestClient
from penstock.cli.doctor.machine_checks import FAIL, OK, WARN, Finding
from penstock.cli.node import Node
from penstock.cli.output import UNHEALTHY, format_partitions
from penstock.errors import ProblemError
from penstock.transport.exchange import Request

SAMPLE = re.compile(r"^(?P<name>[a-z_]+)(?:\{[^}]*\})? (?P<value>\S+)$", re.MULTILINE)
LAG_S = 600
TOPICS_MAX = 1000


def check_node(node: Node) -> Iterator[Finding]:
    """Yields the findings of a node. Raises ConnectionFailed."""
    once = node.once()
    ready = once.send(Request("GET", "/readyz"))
    text = "ready" if ready.status == 200 else f"answers {ready.status} at /readyz"
    yield Finding("node", OK if ready.status == 200 else FAIL, text, "" if ready.status == 200 else "see its log")
    try:
        yield from check_cluster(once.cluster())
        answer = once.send(Request("GET", "/metrics"))
    except ProblemError as error:
        yield Finding("node", WARN, f"cannot be inspected: {error.detail}", "use a --token with the right to read this")
        return
    if answer.status != 200:
        yield Finding("metrics", WARN, f"the node answers {answer.status}", "use a --token with the right to read this")
        return
    yield from _metrics(answer.body.decode())
    yield from _uploads(_tier_statuses(once))


def check_cluster(cluster: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields the findings of `GET /v1/cluster`: versions, lost nodes, the controller, partitions in need."""
    mine, nodes = version("penstock"), cluster["nodes"]
    if "controller" not in cluster:  # a tenant's caller is shown the URLs of the nodes alone
        text = f"a token of a tenant sees the URLs of nodes alone: {', '.join(node['url'] for node in nodes)}"
        yield Finding("cluster", WARN, text, "use a --token of an operator")
        return
    coordination = cluster.get("coordination")
    is_silent = coordination is not None and coordination["silent"]
    if coordination is not None:
        age_ms = coordination["age_ms"]
        text = "has not answered" if age_ms is None else f"answered {age_ms / 1000:.0f} s ago"
        todo = "start it, or let this node reach it; until then no leader is elected" if is_silent else ""
        yield Finding("coordination store", FAIL if is_silent else OK, text, todo)
    versions = sorted({str(node["version"]) for node in nodes if node["alive"]})
    todo = "" if versions == [mine] else f"this command has version {mine}: use the same version everywhere"
    yield Finding("version", WARN if todo else OK, ", ".join(versions), todo)
    if len(nodes) > 1:
        lost = ", ".join(str(node["node_id"]) for node in nodes if not node["alive"])
        todo = "start it, or move its replicas away: penstock cluster decommission NODE"
        text = f"lost: node {lost}, of {len(nodes)}" if lost else f"{len(nodes)}, all alive"
        if is_silent:
            text, todo = f"{text} when the coordination store last answered", todo if lost else "ask each node"
        yield Finding("nodes", FAIL if lost else WARN if is_silent else OK, text, todo if lost or is_silent else "")
    if cluster["controller"] is None and not is_silent:
        yield Finding("controller", FAIL, "none", "no leader is elected until a node reaches the coordination store")
    for state, field in UNHEALTHY:
        if cluster.get(field):
            level = WARN if field == "under_replicated" else FAIL
            todo = "start the nodes of its replicas; penstock topic describe TOPIC names them"
            yield Finding(state, level, format_partitions(cluster[field]), todo)


def _metrics(text: str) -> Iterator[Finding]:
    def of(name: str) -> list[float]:
        return [float(match["value"]) for match in SAMPLE.finditer(text) if match["name"] == name]

    offline, damaged = sum(of("penstock_offline_replicas")), sum(of("penstock_quarantined_segments"))
    if without_metadata := sum(of("penstock_topics_without_metadata")):
        todo = "see the node's log; restore topic.json and restart the node"
        yield Finding("topics", FAIL, f"{without_metadata:.0f} set aside", todo)
    if diverged := sum(of("penstock_diverged_replicas")):
        text = f"{diverged:.0f} do not follow a leader that lacks committed records"
        yield Finding("replicas", FAIL, text, "docs/operate/backup.md says how to choose which records stay")
    if offline:
        yield Finding(
            "partitions", FAIL, f"{offline:.0f} offline", "see the node's log; replace the disk and restart the node"
        )
    elif damaged:
        todo = "penstock topic describe names them; restore them from the store or a copy"
        yield Finding("partitions", FAIL, f"{damaged:.0f} damaged segments", todo)
    else:
        yield Finding("partitions", OK, f"{sum(of('penstock_partitions')):.0f}, none offline or damaged")
    if sum(of("penstock_last_shutdown_power_loss")):
        names = ("penstock_recovery_mid_log_truncations", "penstock_recovery_holes")  # older nodes have the second
        truncations = sum(sum(of(name)) for name in names)
        yield Finding(
            "last stop",
            WARN,
            f"power was lost; {truncations:.0f} logs truncated in the middle",
            "see the log of the last start",
        )
    lag_s = max(of("penstock_tier_lag_seconds"), default=0.0)
    todo = "penstock tier status TOPIC reports why" if lag_s > LAG_S else ""
    yield Finding("tiering", WARN if lag_s > LAG_S else OK, f"{lag_s:.0f} s behind", todo)
    shares = [used / most for used, most in zip(of("process_open_fds"), of("process_max_fds"), strict=True)]
    share = max(shares, default=0.0)
    todo = "raise the limit of open files" if share > 0.8 else ""
    yield Finding("files of the node", WARN if share > 0.8 else OK, f"{share:.0%} of its limit", todo)
    if compiled := of("penstock_codec_compiled"):  # older nodes do not have it
        todo = "" if min(compiled) else "penstock doctor on the node's machine says what is missing"
        kind = "compiled" if min(compiled) else "plain Python: records take about 25 times the processor time"
        yield Finding("codec of the node", OK if min(compiled) else WARN, kind, todo)


def _tier_statuses(once: SingleRequestClient) -> Iterator[Mapping[str, Any]]:
    for topic in once.list_topics()["topics"][:TOPICS_MAX]:
        with suppress(ProblemError):  # it was deleted meanwhile, or the token has no right to it
            yield once.tier_status(topic["topic"])


def _uploads(statuses: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yields a failure that names the first partition whose upload failed or waits for an operator, if there is one."""
    rows = ((status["topic"], row) for status in statuses for row in status["partitions"])
    failed = [f"{topic}/{row['partition']}" for topic, row in rows if row["last_error"]]
    if failed:
        others = f" and {len(failed) - 1} more are" if failed[1:] else " is"
        yield Finding("uploads", FAIL, f"{failed[0]}{others} not uploaded", "penstock tier status TOPIC reports why")
