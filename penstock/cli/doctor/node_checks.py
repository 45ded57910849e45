"""Prints what a running node has found about itself and its cluster (`GET /v1/overview`), and what only a client sees.

Not here: the rules. The node has them (gateway/status/findings.py), so that its console and this command say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from penstock.admin import api
from penstock.cli.doctor.machine_checks import FAIL, OK, WARN, Finding
from penstock.cli.node import Node
from penstock.errors import ProblemError
from penstock.transport.exchange import Request


def check_node(node: Node) -> Iterator[Finding]:
    """Yields the findings of a node. Raises ConnectionFailed."""
    once = node.once()
    ready = once.send(Request("GET", "/readyz"))
    text = "ready" if ready.status == 200 else f"answers {ready.status} at /readyz"
    yield Finding("node", OK if ready.status == 200 else FAIL, text, "" if ready.status == 200 else "see its log")
    try:
        overview = once.send(api.overview()).json()
    except ProblemError as error:
        remedy = "use a --token that it takes" if error.status == 401 else "use this command in the node's version"
        yield Finding("overview", WARN, f"the node cannot be inspected: {error.detail}", remedy)
        return
    yield from check_overview(overview)


def check_overview(overview: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields what an overview says: each of its findings, and that all is well with what has none."""
    mine, its = version("penstock"), overview["version"]
    todo = "" if its == mine else f"this command has version {mine}: use the same version everywhere"
    yield Finding("version", WARN if todo else OK, its, todo)
    for found in overview["findings"]:
        yield Finding(found["code"], found["level"], f"{found['subject']}: {found['found']}", found["remedy"])
    if overview["more_findings"]:
        yield Finding("more", WARN, f"{overview['more_findings']} further findings", "mend those above first")
    if "nodes" not in overview:
        text = f"{overview['topics']} topics; a token without the right to the cluster sees nothing of its nodes"
        yield Finding("cluster", WARN, text, "use a --token of an operator")
        return
    for node_id in overview["nodes_missing"]:
        text = f"node {node_id} did not answer node {overview['node_id']}"
        yield Finding("nodes_missing", WARN, text, "see its log, and whether the two reach each other")
    if not overview["findings"] and not overview["nodes_missing"]:
        counts = (overview["nodes"], "nodes"), (overview["topics"], "topics"), (overview["partitions"], "partitions")
        yield Finding("cluster", OK, ", ".join(f"{count} {name}" for count, name in counts))
