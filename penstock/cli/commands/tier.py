"""`penstock tier`: shows how much of a topic is in the object store."""

from __future__ import annotations

import click

from penstock.cli.completing import topics
from penstock.cli.groups import AliasGroup
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import Column, format_bytes, print_facts, print_json, print_note, print_table
from penstock.transport.exchange import Json


@click.group(cls=AliasGroup)
@shared_options
def tier(**_: object) -> None:
    """Show the contents of the object store."""


@tier.command()
@click.argument("topic", required=False, shell_complete=topics)
@node_options
def status(topic: str | None, node: Node, as_json: bool) -> None:
    """Show what is sealed, stored and waiting: per topic, or per partition of one TOPIC."""
    client = node.once()
    if topic is not None:
        document = client.tier_status(topic)
        print_json(document) if as_json else _print_partitions(document)
        return
    documents = [client.tier_status(one["topic"]) for one in client.list_topics()["topics"]]
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
                one["partition"],
                one["log_start"],
                one["local_log_start"],
                one["tiered_end"],
                one["sealed_end"],
                one["high_watermark"],
                one["objects"],
                format_bytes(one["tiered_bytes"]),
                format_bytes(one["pending_bytes"]),
            )
            for one in document["partitions"]
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
                sum(one["high_watermark"] - one["log_start"] for one in document["partitions"]),
                sum(max(0, one["tiered_end"] - one["log_start"]) for one in document["partitions"]),
                sum(one["objects"] for one in document["partitions"]),
                format_bytes(sum(one["tiered_bytes"] for one in document["partitions"])),
                format_bytes(sum(one["pending_bytes"] for one in document["partitions"])),
            )
            for document in documents
        ],
    )
    for document in documents:
        _print_errors(document)


def _print_errors(document: Json) -> None:
    for one in document["partitions"]:
        if one["last_error"]:
            print_note(f"{document['topic']}/{one['partition']}: the last upload failed: {one['last_error']}")
