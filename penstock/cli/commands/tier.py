"""`penstock tier`: shows how much of a topic is in the object store.

The commands that read the store itself come from the distribution `penstock-server` (penstock/cli/server_commands.py).
"""

from __future__ import annotations

import click

from penstock.cli.completing import topics
from penstock.cli.groups import AliasGroup
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import Column, format_bytes, print_facts, print_json, print_note, print_table
from penstock.transport.exchange import Json

# The commands of the server, with the first sentence of their help.
STORE_COMMANDS = {
    "verify": "Check that the store has every object that manifests name, and that their facts agree.",
    "repair": "Repair what can be repaired for certain; show the steps first.",
    "restore": "Build the data directory of a node from the store: all topics, or the given ones.",
}


class TierGroup(AliasGroup):
    """Imports a command of the server when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *STORE_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command. Raises Failure if it needs the server and that is not installed."""
        return store_command(cmd_name) if cmd_name in STORE_COMMANDS else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, command.get_short_help_str(100)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*commands, *STORE_COMMANDS.items()])


def store_command(name: str) -> click.Command:
    """Imports a command of the server. Raises Failure."""
    from penstock.cli.server_commands import load_server_command

    group = load_server_command("tier")
    assert isinstance(group, click.Group)
    return group.commands[name]


@click.group(cls=TierGroup)
@shared_options
def tier(**_: object) -> None:
    """Show, verify and repair the object store, and restore from it."""


@tier.command()
@click.argument("topic", required=False, shell_complete=topics)
@click.option("--store", metavar="URL", help="Read this store instead of asking a node. A node is asked with --url.")
@click.option("--cluster", metavar="ID", help="Only this cluster of the store.")
@node_options
@click.pass_context
def status(
    ctx: click.Context, topic: str | None, store: str | None, cluster: str | None, node: Node, as_json: bool
) -> None:
    """Show what is closed, uploaded and waiting: per topic, or per partition of one TOPIC.

    With --store it reads the store and needs no node.

    \f
    Raises click.UsageError.
    """
    if store is not None:
        command = store_command("status")
        ctx.invoke(command, topic=topic, store_url=command.params[1].type_cast_value(ctx, store), cluster=cluster)
        return
    if cluster is not None:
        raise click.UsageError("--cluster needs --store", ctx)
    client = node.once()
    if topic is not None:
        document = client.tier_status(topic)
        print_json(document) if as_json else _print_partitions(document)
        return
    documents = [client.tier_status(topic["topic"]) for topic in client.list_topics()["topics"]]
    if as_json:
        print_json({"topics": documents})
    elif documents:
        _print_topics(documents)
    else:
        print_note("There are no topics.")


def _print_partitions(document: Json) -> None:
    print_facts([("topic", document["topic"]), ("store", document["store"])])
    click.echo()
    print_table(
        [
            Column("partition"),
            Column("log\nstart"),
            Column("local\nstart"),
            Column("tiered\nend"),
            Column("sealed\nend"),
            Column("high\nwatermark"),
            Column("objects"),
            Column("stored"),
            Column("waiting"),
        ],
        [
            (
                partition["partition"],
                partition["log_start"],
                partition["local_log_start"],
                partition["tiered_end"],
                partition["sealed_end"],
                partition["high_watermark"],
                partition["objects"],
                format_bytes(partition["tiered_bytes"]),
                format_bytes(partition["pending_bytes"]),
            )
            for partition in document["partitions"]
        ],
    )
    _print_errors(document)


def _print_topics(documents: list[Json]) -> None:
    print_table(
        [
            Column("topic", is_text=True),
            Column("records"),
            Column("stored\nrecords"),
            Column("objects"),
            Column("stored"),
            Column("waiting"),
        ],
        [
            (
                document["topic"],
                sum(partition["high_watermark"] - partition["log_start"] for partition in document["partitions"]),
                sum(max(0, partition["tiered_end"] - partition["log_start"]) for partition in document["partitions"]),
                sum(partition["objects"] for partition in document["partitions"]),
                format_bytes(sum(partition["tiered_bytes"] for partition in document["partitions"])),
                format_bytes(sum(partition["pending_bytes"] for partition in document["partitions"])),
            )
            for document in documents
        ],
    )
    for document in documents:
        _print_errors(document)


def _print_errors(document: Json) -> None:
    for row in document["partitions"]:
        if row["last_error"]:
            print_note(f"{document['topic']}/{row['partition']}: the last upload failed: {row['last_error']}")
