"""`penstock disk`: shows the data directories of a node, and moves partitions between them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from penstock.cli.failures import Failure
from penstock.cli.groups import AliasGroup
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import Column, format_bytes, format_count, print_json, print_note, print_table
from penstock.transport.exchange import Json

POLL_S = 1.0
node_option = click.option(
    "--node", "node_id", metavar="ID", type=click.IntRange(1), help="The node; needed if there are several."
)


@click.group(cls=AliasGroup)
@shared_options
def disk(**_: object) -> None:
    """Show the disks of a node, and move partitions between them while it runs."""


@disk.command("list")
@node_option
@node_options
def list_disks(node_id: int | None, node: Node, as_json: bool) -> None:
    """Show the data directories of a node, and the partitions that move."""
    document = node.once().disks(_chosen_node(node, node_id))
    if as_json:
        print_json(document)
        return
    columns = [
        Column("directory", is_text=True), Column("state", is_text=True), Column("partitions"), Column("stored"),
        Column("free"), Column("of"),
    ]  # fmt: skip
    rows = [
        (
            row["path"],
            "online" if row["online"] else row["reason"],
            row["partitions"],
            format_bytes(row["size_bytes"]),
            *("-" if row[name] is None else format_bytes(row[name]) for name in ("free_bytes", "capacity_bytes")),
        )
        for row in document["disks"]
    ]
    print_table(columns, rows)
    if document["moves"]:
        click.echo()
        _print_moves(document["moves"])


@disk.command()
@click.argument("partitions", metavar="TOPIC/PARTITION…", nargs=-1, required=True)
@click.option("--to", "path", metavar="DIR", required=True, help="The data directory to move to.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Check only, and show what would move.")
@click.option("--wait", "is_waiting", is_flag=True, help="Show the progress until all moves have ended.")
@node_option
@node_options
def move(
    partitions: tuple[str, ...],
    path: str,
    is_dry_run: bool,
    is_waiting: bool,
    node_id: int | None,
    node: Node,
    as_json: bool,
) -> None:
    """Move partitions of a node to another of its data directories.

    They are read and written meanwhile. Naming the present directory ends a move.

    \f
    Raises click.BadParameter, Failure if a move fails while this waits.
    """
    moves = [(*_parse_partition(text), path) for text in partitions]
    chosen = _chosen_node(node, node_id)
    document = node.once().move_partitions(chosen, moves, is_dry_run)
    _print_plan(document, as_json)
    if is_waiting and not is_dry_run:
        _wait_ended(node, chosen, moves, as_json)


@disk.command()
@click.option("--plan", "is_applied", flag_value=False, type=bool, default=False, help="Show the moves.  [default]")
@click.option("--apply", "is_applied", flag_value=True, type=bool, help="Start them.")
@node_option
@node_options
def balance(is_applied: bool, node_id: int | None, node: Node, as_json: bool) -> None:
    """Make the free bytes of a node's disks more equal, with few moves."""
    _print_plan(node.once().move_partitions(_chosen_node(node, node_id), None, not is_applied), as_json)


@disk.command()
@click.argument("partition", metavar="TOPIC/PARTITION")
@node_option
@node_options
def cancel(partition: str, node_id: int | None, node: Node, as_json: bool) -> None:
    """End the move of a partition; it stays where it is."""
    topic, number = _parse_partition(partition)
    node.once().cancel_move(_chosen_node(node, node_id), topic, number)
    if as_json:
        print_json({"topic": topic, "partition": number, "moving": False})
    else:
        print_note(f"{partition} is not being moved.")


def _parse_partition(text: str) -> tuple[str, int]:
    """Parses `flights/3`. Raises click.BadParameter."""
    topic, slash, number = text.rpartition("/")
    if not (slash and topic and number.isascii() and number.isdecimal()):
        raise click.BadParameter(f"{text!r} is not like flights/3", param_hint="'TOPIC/PARTITION'")
    return topic, int(number)


def _chosen_node(node: Node, node_id: int | None) -> int:
    """Returns the node that the command is about. Raises click.UsageError if there are several and none is named."""
    if node_id is not None:
        return node_id
    ids = [row["node_id"] for row in node.once().cluster()["nodes"] if "node_id" in row]
    if len(ids) != 1:
        raise click.UsageError(f"name a node with --node: {', '.join(map(str, ids)) or 'none is visible'}")
    return int(ids[0])


def _print_plan(document: Json, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    if not (moves := document["moves"]):
        print_note("There are no moves: the disks are balanced.")
        return
    _print_moves(moves)
    total = format_bytes(sum(row["left_bytes"] for row in moves))
    count = format_count(len(moves), "move")
    print_note(f"{count}, {total} to copy. {'Nothing is started.' if document['dry_run'] else 'Started.'}")


def _print_moves(moves: Sequence[Json]) -> None:
    columns = [
        Column("topic", is_text=True), Column("partition"), Column("from", is_text=True), Column("to", is_text=True),
        Column("state", is_text=True), Column("left"), Column("of"),
    ]  # fmt: skip
    rows = [
        (
            *(row[name] for name in ("topic", "partition", "from", "to", "state")),
            *(format_bytes(row[name]) for name in ("left_bytes", "size_bytes")),
        )
        for row in moves
    ]
    print_table(columns, rows)
    for row in moves:
        if row["error"]:
            print_note(f"{row['topic']}/{row['partition']}: {row['error']}")


def _wait_ended(node: Node, node_id: int, asked: Sequence[tuple[str, int, str]], as_json: bool) -> None:
    """Waits until none of the partitions moves. Raises Failure if a partition is not where it should be."""
    partitions = {(topic, number) for topic, number, _ in asked}
    while True:
        moves = [row for row in node.once().disks(node_id)["moves"] if (row["topic"], row["partition"]) in partitions]
        running = [row for row in moves if row["state"] != "failed"]
        if not running:
            break
        if not as_json:
            left = format_bytes(sum(row["left_bytes"] for row in running))
            print_note(f"{format_count(len(running), 'partition')} to move, {left} left")
        time.sleep(POLL_S)
    if moves:
        raise Failure("; ".join(f"{row['topic']}/{row['partition']}: {row['error']}" for row in moves))
    places = node.once().move_partitions(node_id, asked, True)["moves"]
    if stayed := [f"{row['topic']}/{row['partition']}" for row in places if row["from"] != row["to"]]:
        raise Failure(f"not moved, since the node has restarted or the move was cancelled: {', '.join(stayed)}")
    if not as_json:
        print_note("Moved.")
