"""`penstock cluster`: shows the nodes and moves partitions between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from penstock.cli.completing import topics
from penstock.cli.confirming import confirm, yes_option
from penstock.cli.explaining import explain_findings
from penstock.cli.groups import AliasGroup
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import (
    UNHEALTHY,
    Column,
    format_bytes,
    format_count,
    format_partitions,
    print_facts,
    print_json,
    print_note,
    print_result,
    print_table,
)
from penstock.transport.exchange import Json


@click.group(cls=AliasGroup)
@shared_options
def cluster(**_: object) -> None:
    """Show the nodes of the cluster, and move partitions between them."""


@cluster.command()
@node_options
def explain(node: Node, as_json: bool) -> None:
    """Print what is wrong with nodes and topics, and the remedies."""
    explain_findings(node, None, as_json=as_json)


@cluster.command()
@node_options
def status(node: Node, as_json: bool) -> None:
    """Show the cluster, its nodes and partitions in need.

    In need: without a leader, with too few replicas in sync for acks=all, or with fewer than they have.
    """
    document = node.once().cluster()
    if as_json:
        print_json(document)
        return
    if "controller" not in document:  # inside of a tenant
        print_table([Column("url", is_text=True)], [(one["url"],) for one in document["nodes"]])
        return
    controller = document["controller"]
    print_facts(
        [
            ("cluster", document["cluster_id"]),
            ("controller", "none now" if controller is None else f"node {controller}"),
            ("shards", document["shards"]),
            ("feature level", document.get("feature_level", "unknown")),  # of an earlier version
            *_unhealthy(document),
        ]
    )
    click.echo()
    print_table(
        [
            Column("node"),
            Column("state", is_text=True),
            Column("leading"),
            Column("partitions"),
            Column("behind"),
            Column("rack", is_text=True),
            Column("version", is_text=True),
            Column("url", is_text=True),
        ],
        [
            (
                node["node_id"],
                _state_of(node),
                *(node[name] for name in ("leading", "partitions", "under_replicated")),
                *("-" if node[name] is None else node[name] for name in ("rack", "version", "url")),
            )
            for node in document["nodes"]
        ],
    )


@cluster.command()
@click.argument("topic", metavar="TOPIC", shell_complete=topics)
@click.argument("targets", metavar="PARTITION=NODE,NODE…", nargs=-1, required=True)
@node_options
def reassign(topic: str, targets: tuple[str, ...], node: Node, as_json: bool) -> None:
    """Move partitions of a topic to other nodes.

    Name the preferred leader first. An old replica is removed when all new ones are in sync; `penstock cluster
    reassignments` shows how far that is.
    """
    document = node.once().reassign(topic, dict(map(parse_target, targets)))
    if as_json:
        print_json(document)
        return
    _print_reassignments(document["reassignments"], nothing=f"Topic {topic} already has these replicas.")


@cluster.command()
@node_options
def reassignments(node: Node, as_json: bool) -> None:
    """Show partitions that move, and the bytes left to copy."""
    document = node.once().reassignments()
    if as_json:
        print_json(document)
        return
    _print_reassignments(document["reassignments"], nothing="No partition is being moved.")


@cluster.command()
@click.argument("topic", metavar="TOPIC", shell_complete=topics)
@click.argument("partition", type=click.IntRange(0))
@node_options
def cancel(topic: str, partition: int, node: Node, as_json: bool) -> None:
    """Cancel the move of a partition; it stays where it was."""
    node.once().cancel_reassignment(topic, partition)
    print_result(
        {"topic": topic, "partition": partition, "moving": False},
        f"{topic}/{partition} is not being moved.",
        as_json=as_json,
    )


@cluster.command()
@click.argument("node_id", metavar="NODE", type=click.IntRange(1))
@node_options
def drain(node_id: int, node: Node, as_json: bool) -> None:
    """Move leadership off a node, and place nothing new on it."""
    document = node.once().drain_node(node_id)
    print_result(
        document,
        f"Node {node_id} is drained; its replicas still follow. To end the drain: penstock cluster undrain {node_id}",
        as_json=as_json,
    )


@cluster.command()
@click.argument("node_id", metavar="NODE", type=click.IntRange(1))
@node_options
def undrain(node_id: int, node: Node, as_json: bool) -> None:
    """Take a drained node back."""
    document = node.once().drain_node(node_id, is_drained=False)
    print_result(
        document, f"Node {node_id} may lead again; its preferred leaderships return within minutes.", as_json=as_json
    )


@cluster.command()
@click.argument("node_id", metavar="NODE", type=click.IntRange(1))
@yes_option
@node_options
def decommission(node_id: int, is_sure: bool, node: Node, as_json: bool) -> None:
    """Drain a node and move all of its partitions to others.

    It can be removed when no reassignment is left.

    \f
    Raises click.UsageError without a terminal to confirm at, Failure if the answer is no.
    """
    confirm(f"Move all partitions off node {node_id}?", is_sure=is_sure)
    document = node.once().decommission_node(node_id)
    moving = format_count(document["moving"], "partition")
    print_result(document, f"Moving {moving} off node {node_id}; see penstock cluster reassignments.", as_json=as_json)


@cluster.command()
@click.option(
    "--plan", "is_applied", flag_value=False, type=bool, default=False, help="Show the moves only.  [default]"
)
@click.option("--apply", "is_applied", flag_value=True, type=bool, help="Start them.")
@node_options
def balance(is_applied: bool, node: Node, as_json: bool) -> None:
    """Spread bytes over the nodes with few moves."""
    document = node.once().balance(is_applied)
    if as_json:
        print_json(document)
        return
    moves = document["moves"]
    if not moves:
        print_note("The nodes are balanced: there are no moves.")
        return
    print_table(
        [Column("topic", is_text=True), Column("partition"), Column("from"), Column("to"), Column("size")],
        [
            (move["topic"], move["partition"], move["from_node"], move["to_node"], format_bytes(move["size_bytes"]))
            for move in moves
        ],
    )
    total = format_bytes(sum(move["size_bytes"] for move in moves))
    what = "Started" if is_applied else "To start them: penstock cluster balance --apply"
    print_note(f"{format_count(len(moves), 'move')}, {total} to copy. {what}{'.' if is_applied else ''}")


def parse_target(text: str) -> tuple[int, list[int]]:
    """Parses `0=1,2,3` into the partition and its target nodes. Raises click.BadParameter; ValueError is caught."""
    number, equals, nodes = text.partition("=")
    try:
        if not equals:
            raise ValueError
        return int(number), [int(node) for node in nodes.split(",")]
    except ValueError:
        hint = "'PARTITION=NODE,NODE…'"
        raise click.BadParameter(f"{text!r} is not like 0=1,2,3", param_hint=hint) from None


def _print_reassignments(rows: Sequence[Json], nothing: str) -> None:
    if not rows:
        print_note(nothing)
        return
    print_table(
        [
            Column("topic", is_text=True),
            Column("partition"),
            Column("to nodes", is_text=True),
            Column("copying", is_text=True),
            Column("leaving", is_text=True),
            Column("in sync", is_text=True),
            Column("left"),
            Column("of"),
        ],
        [
            (
                row["topic"],
                row["partition"],
                *(_nodes(row[name]) for name in ("replicas", "adding", "removing", "in_sync")),
                *_progress(row),
            )
            for row in rows
        ],
    )


def _progress(row: Json) -> tuple[str, str]:
    """Returns the most bytes that a node has left to copy, and the partition's size. Older versions send neither."""
    left, size_bytes = row.get("left_bytes", {}), row.get("size_bytes")
    return format_bytes(max(left.values())) if left else "-", "-" if size_bytes is None else format_bytes(size_bytes)


def _unhealthy(document: Json) -> list[tuple[str, str]]:
    return [(name, format_partitions(document[field])) for name, field in UNHEALTHY if document.get(field)]


def _state_of(node: Json) -> str:
    if not node["alive"]:
        return "gone"
    if node.get("stale"):  # earlier versions do not have it
        return "unknown"
    if node["leaving"]:
        return "leaving"
    return "drained" if node["drained"] else "alive"


def _nodes(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or "-"
