"""Prints the findings of a node in the style of `penstock group explain`: observation with cause, then the remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from penstock.admin import api
from penstock.cli.node import Node
from penstock.cli.output import print_json

_COLOURS = {"warn": "yellow", "fail": "red"}


def explain_findings(node: Node, topic: str | None, *, as_json: bool) -> None:
    """Prints the findings of a topic, or with None those of nodes and topics."""
    overview = node.once().send(api.overview()).json()
    findings = [
        one
        for one in overview["findings"]
        if (one["topic"] == topic if topic is not None else not (one["group"] or one["subscription"]))
    ]
    if as_json:
        print_json({"findings": findings, "nodes_missing": overview.get("nodes_missing", [])})
        return
    print_findings(findings)
    print_silent(overview)
    if topic is None and "nodes" not in overview:
        click.echo("This token lacks the right to the cluster, so that findings about nodes are not here.")
    elif not findings:
        click.echo("Nothing is wrong." if topic is None else f"Nothing is wrong with {topic}.")


def print_silent(overview: Mapping[str, Any]) -> None:
    """Prints which nodes are not in the numbers and findings."""
    for node_id in overview.get("nodes_missing", []):
        click.echo(f"Node {node_id} did not answer: its numbers and findings are not here.")


def print_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    for one in findings:
        level = click.style(one["level"].ljust(4), fg=_COLOURS[one["level"]], bold=True)
        since = f", for {one['age_s']} s" if one["age_s"] else ""
        click.echo(f"{level}  {one['subject']}: {one['found']}{since}")
        click.echo(f"      {one['remedy']}")
        click.echo(f"      {click.style(one['runbook'], dim=True)}")
