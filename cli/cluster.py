"""`penstock cluster`: the nodes and who they are."""

from __future__ import annotations

import click

from cli.node import Node, node_options
from cli.output import Column, print_facts, print_json, print_table


@click.group()
def cluster() -> None:
    """See the nodes of the cluster."""


@cluster.command()
@node_options
def status(url: str, token: str | None, as_json: bool) -> None:
    """Show the cluster's id and nodes."""
    document = Node(url, token).once().cluster()
    if as_json:
        print_json(document)
        return
    print_facts(
        [
            ("cluster", document["cluster_id"]),
            ("controller", f"node {document['controller']}" if document["controller"] is not None else None),
            ("shards", document["shards"]),
        ]
    )
    click.echo()
    print_table(
        [Column("node"), Column("url", is_text=True), Column("rack", is_text=True), Column("version", is_text=True)],
        [(one["node_id"], one["url"], one["rack"], one["version"]) for one in document["nodes"]],
    )
