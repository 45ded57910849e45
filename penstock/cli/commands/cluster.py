"""`penstock cluster`: the nodes, and moving partitions between them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import click

from penstock.cli.endings import Failure
from penstock.cli.node import Node, node_options
from penstock.cli.output import Column, counted, print_facts, print_json, print_table, shown_bytes, tell
from penstock.transport.exchange import Json

_IN_NEED = (
    ("without a leader", "offline_partitions"),
    ("too few in sync for acks=all", "under_min_in_sync"),
    ("under-replicated", "under_replicated"),
)
NAMED_MAX = 10  # of a fact's topics; --json has all


@click.group()
def cluster() -> None:
    """See the nodes of the cluster, and move partitions between them."""


@cluster.command()
@node_options
def status(url: str, token: str | None, as_json: bool) -> None:
    """Show the cluster's id, its nodes, and which partitions somebody may have to see to."""
    document = Node(url, token).once().cluster()
    if as_json:
        print_json(document)
        return
    controller = document["controller"]
    print_facts(
        [
            ("cluster", document["cluster_id"]),
            ("controller", "none now" if controller is None else f"node {controller}"),
            ("shards", document["shards"]),
            *_in_need(document),
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
                one["node_id"],
                _state_of(one),
                *(one[name] for name in ("leading", "partitions", "under_replicated")),
                *("-" if one[name] is None else one[name] for name in ("rack", "version", "url")),
            )
            for one in document["nodes"]
        ],
    )


@cluster.command()
@click.argument("topic", metavar="TOPIC")
@click.argument("targets", metavar="PARTITION=NODE,NODE…", nargs=-1, required=True)
@node_options
def reassign(topic: str, targets: tuple[str, ...], url: str, token: str | None, as_json: bool) -> None:
    """Move partitions of a topic to other nodes, the preferred leader first.

    The new replicas copy first; no old one goes before they are in sync. Shown by `penstock cluster reassignments`.
    """
    document = Node(url, token).once().reassign(topic, dict(map(parse_target, targets)))
    if as_json:
        print_json(document)
        return
    _print_reassignments(document["reassignments"], nothing=f"All of topic {topic} is where it is to be.")


@cluster.command()
@node_options
def reassignments(url: str, token: str | None, as_json: bool) -> None:
    """Show which partitions are being moved, and how many bytes the node that has the least still lacks."""
    document = Node(url, token).once().reassignments()
    if as_json:
        print_json(document)
        return
    _print_reassignments(document["reassignments"], nothing="No partition is being moved.")


@cluster.command()
@click.argument("topic", metavar="TOPIC")
@click.argument("partition", type=click.IntRange(0))
@node_options
def cancel(topic: str, partition: int, url: str, token: str | None, as_json: bool) -> None:
    """Call the move of a partition off; it goes back to where it was."""
    Node(url, token).once().cancel_reassignment(topic, partition)
    _say({"topic": topic, "partition": partition, "moving": False}, f"{topic}/{partition} is not being moved.", as_json)


@cluster.command()
@click.argument("node_id", metavar="NODE", type=click.IntRange(1))
@node_options
def drain(node_id: int, url: str, token: str | None, as_json: bool) -> None:
    """Have a node lead nothing that another can lead, and give it nothing new."""
    document = Node(url, token).once().drain_node(node_id)
    _say(
        document,
        f"Node {node_id} is drained: it goes on copying. To take it back: penstock cluster undrain {node_id}",
        as_json,
    )


@cluster.command()
@click.argument("node_id", metavar="NODE", type=click.IntRange(1))
@node_options
def undrain(node_id: int, url: str, token: str | None, as_json: bool) -> None:
    """Take a drained node back."""
    document = Node(url, token).once().drain_node(node_id, is_drained=False)
    _say(document, f"Node {node_id} may lead again; what it was meant to lead comes back within minutes.", as_json)


@cluster.command()
@click.argument("node_id", metavar="NODE", type=click.IntRange(1))
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask.")
@node_options
def decommission(node_id: int, is_sure: bool, url: str, token: str | None, as_json: bool) -> None:
    """Drain a node and move everything off it, so that it can be switched off for good."""
    if not is_sure:
        if not sys.stdin.isatty():
            text = "emptying a node without a terminal to ask at needs --yes"
            raise click.UsageError(text, click.get_current_context())
        if not click.confirm(f"Move everything off node {node_id}?", err=True):
            raise Failure("nothing was moved")
    document = Node(url, token).once().decommission_node(node_id)
    moving = counted(document["moving"], "partition")
    _say(document, f"Moving {moving} off node {node_id}; see penstock cluster reassignments.", as_json)


@cluster.command()
@click.option(
    "--plan", "is_applied", flag_value=False, type=bool, default=False, help="Only show the moves.  [default]"
)
@click.option("--apply", "is_applied", flag_value=True, type=bool, help="Begin them.")
@node_options
def balance(is_applied: bool, url: str, token: str | None, as_json: bool) -> None:
    """Spread bytes over the nodes with few moves."""
    document = Node(url, token).once().balance(is_applied)
    if as_json:
        print_json(document)
        return
    moves = document["moves"]
    if not moves:
        tell("The nodes hold about as much as each other: nothing is to be moved.")
        return
    print_table(
        [Column("topic", is_text=True), Column("partition"), Column("from"), Column("to"), Column("size")],
        [
            (one["topic"], one["partition"], one["from_node"], one["to_node"], shown_bytes(one["size_bytes"]))
            for one in moves
        ],
    )
    total = shown_bytes(sum(one["size_bytes"] for one in moves))
    what = "Begun" if is_applied else "To begin them: penstock cluster balance --apply"
    tell(f"{counted(len(moves), 'move')}, {total} to copy. {what}{'.' if is_applied else ''}")


def parse_target(text: str) -> tuple[int, list[int]]:
    """`0=1,2,3`: the partition, and the nodes that it is to be on."""
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
        tell(nothing)
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
                one["topic"],
                one["partition"],
                *(_nodes(one[name]) for name in ("replicas", "adding", "removing", "in_sync")),
                *_progress(one),
            )
            for one in rows
        ],
    )


def _progress(row: Json) -> tuple[str, str]:
    """What the node that has the least lacks, and of how much; a node of an older version does not tell."""
    left, size_bytes = row.get("left_bytes", {}), row.get("size_bytes")
    return shown_bytes(max(left.values())) if left else "-", "-" if size_bytes is None else shown_bytes(size_bytes)


def _in_need(document: Json) -> list[tuple[str, str]]:
    facts = []
    for name, field in _IN_NEED:
        found = document.get(field, [])
        if found:
            named = [f"{one['topic']}/{_nodes(one['partitions'])}" for one in found[:NAMED_MAX]]
            more = [f"and of {len(found) - NAMED_MAX} more topics"] if len(found) > NAMED_MAX else []
            facts.append((name, " ".join([*named, *more])))
    return facts


def _state_of(node: Json) -> str:
    if not node["alive"]:
        return "gone"
    if node["leaving"]:
        return "leaving"
    return "drained" if node["drained"] else "alive"


def _nodes(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or "-"


def _say(document: Json, text: str, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        click.echo(text)
