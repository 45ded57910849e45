"""`penstock topic`: creates, lists, describes, alters, deletes and rolls topics, and shows who is behind in them."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import click

from penstock.admin import api
from penstock.cli.commands.record_deletion import delete_records, erase
from penstock.cli.commands.topic_copy import copy
from penstock.cli.commands.topic_schema import schema
from penstock.cli.completing import TOPIC_SETTINGS, complete_settings, topics
from penstock.cli.confirming import confirm, yes_option
from penstock.cli.explaining import explain_findings
from penstock.cli.groups import AliasGroup
from penstock.cli.listing import Page, page_options, print_page
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import (
    Column,
    format_bytes,
    format_count,
    format_duration,
    format_value,
    print_facts,
    print_json,
    print_note,
    print_result,
    print_table,
)
from penstock.errors import ProblemError
from penstock.transport.exchange import Json
from penstock.units import with_units

_WORDS = {"true": True, "yes": True, "false": False, "no": False, "null": None}  # tables show yes and no
_CONFIG = click.option(
    "--config",
    "-c",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=complete_settings,
    help="A topic setting, such as retention=7d or segment_bytes=64MiB. May be repeated.",
)


_RETENTION = click.option(
    "--retention", metavar="AGE_OR_SIZE", help="Keep records for this time, or up to this size: 7d, 50GiB."
)


@click.group(cls=AliasGroup)
@shared_options
def topic(**_: object) -> None:
    """Create, list, describe, alter, copy, delete and roll topics, and delete records."""


topic.add_command(delete_records)
topic.add_command(erase)
topic.add_command(copy)
topic.add_command(schema)


@topic.command()
@click.argument("name", metavar="TOPIC")
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(1),
    help="Number of partitions.  [default: default_partitions of the node]",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    help="Number of replicas of each partition.  [default: default_replication_factor of the node]",
)
@_CONFIG
@_RETENTION
@node_options
def create(
    name: str, partitions: int | None, replication_factor: int | None, settings: tuple[str, ...],
    retention: str | None, node: Node, as_json: bool,
) -> None:  # fmt: skip
    """Create a topic.

    Idempotent: repeating the command has no effect.
    """
    config = parse_settings(_with_retention(settings, retention)) or None
    answer = node.once().send(api.create_topic(name, partitions, replication_factor, config))
    described = answer.json()
    if as_json:
        print_json(described)
        return
    is_new = answer.status == 201
    count = format_count(len(described["partitions"]), "partition")
    click.echo(f"{'Created' if is_new else 'There is already'} topic {name} with {count}.")


@topic.command("list")
@page_options
@node_options
def list_topics(page: Page, node: Node, as_json: bool) -> None:
    """List topics."""
    document = node.once().list_topics(**page)
    columns = [Column("topic", is_text=True), Column("partitions"), Column("replication factor")]
    empty = "There are no topics. Create one with: penstock topic create NAME"
    names = ("topic", "partitions", "replication_factor")
    print_page(document, "topics", columns, itemgetter(*names), empty, as_json=as_json)


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topics)
@node_options
def explain(name: str, node: Node, as_json: bool) -> None:
    """Print what is wrong with a topic, and the remedies."""
    node.once().describe_topic(name)
    explain_findings(node, name, as_json=as_json)


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topics)
@node_options
def describe(name: str, node: Node, as_json: bool) -> None:
    """Show a topic's partitions and settings."""
    described = node.once().describe_topic(name)
    if as_json:
        print_json(described)
        return
    partitions = described["partitions"]
    # the positions of the others are unknown now
    led = [partition for partition in partitions if partition["log_end"] is not None]
    records = sum(partition["high_watermark"] - partition["log_start"] for partition in led)
    size_bytes = sum(partition["size_bytes"] for partition in led)
    print_facts(
        [
            ("topic", described["topic"]),
            ("id", described["topic_id"]),
            ("replication factor", described["replication_factor"]),
            ("records", records),
            ("on local disk", format_bytes(size_bytes)),
            *_unhealthy(partitions),
        ]
    )
    click.echo()
    print_partitions(partitions)
    click.echo()
    print_settings(described["config"])


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topics)
@node_options
def lag(name: str, node: Node, as_json: bool) -> None:
    """Show how far each consumer group is behind in a topic."""
    once = node.once()
    once.describe_topic(name)  # fails for an unknown topic
    groups = []
    for group in (group["group"] for group in once.list_groups()["groups"]):
        try:
            described = once.describe_group(group)
        except ProblemError as error:
            if error.code == "invalid_group_name":
                print_note(f"Group {group!r} is left out: Kafka's tools alone can name it, as kafka-consumer-groups.")
            elif error.code != "unknown_group":  # deleted meanwhile
                raise
            continue
        read = [partition for partition in described["partitions"] if partition["topic"] == name]
        if read:
            groups.append({"group": group, "state": described["state"], **_total_lag(read)})
    if as_json:
        print_json({"topic": name, "groups": groups})
    elif not groups:
        print_note(f"No group has a position in topic {name}.")
    else:
        columns = [Column("group", is_text=True), Column("state", is_text=True), Column("lag")]
        rows = [
            (row["group"], row["state"], row["lag"], format_bytes(row["lag_bytes"]), format_duration(row["lag_ms"]))
            for row in groups
        ]
        print_table([*columns, Column("lag bytes"), Column("behind")], rows)


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topics)
@click.option("--partitions", "-p", type=click.IntRange(1), help="Increase the number of partitions to this.")
@click.option(
    "--replication-factor", type=click.IntRange(1, 16), help="Change the number of replicas of each partition."
)
@_CONFIG
@_RETENTION
@node_options
def alter(
    name: str, partitions: int | None, replication_factor: int | None, settings: tuple[str, ...],
    retention: str | None, node: Node, as_json: bool,
) -> None:  # fmt: skip
    """Change settings of a topic; the others stay.

    A topic never loses partitions. After it gains some, most keys go to another partition: records of one key keep
    their order among those from before and among those from after, not across.

    \f
    Raises click.UsageError if there is nothing to change.
    """
    config = parse_settings(_with_retention(settings, retention))
    if not config and partitions is None and replication_factor is None:
        text = "nothing to change: give --config NAME=VALUE, --partitions N or --replication-factor N"
        raise click.UsageError(text, click.get_current_context())
    described = node.once().alter_topic(
        name, config or None, partitions=partitions, replication_factor=replication_factor
    )
    if as_json:
        print_json(described)
        return
    if partitions is not None:
        click.echo(f"Topic {name} has {format_count(len(described['partitions']), 'partition')}.")
    if replication_factor is not None:
        click.echo(
            f"Topic {name} gets {format_count(replication_factor, 'replica')}; see penstock cluster reassignments."
        )
    if config:
        print_settings({key: described["config"][key] for key in config})


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topics)
@click.argument("settings", metavar="SETTING…", nargs=-1, required=True)
@node_options
def unset(name: str, settings: tuple[str, ...], node: Node, as_json: bool) -> None:
    """Give settings of a topic their defaults again."""
    described = node.once().alter_topic(name, unset=settings)
    if as_json:
        print_json(described)
    else:
        print_settings({key: described["config"][key] for key in settings})


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topics)
@yes_option
@node_options
def delete(name: str, is_sure: bool, node: Node, as_json: bool) -> None:
    """Delete a topic and all its records.

    \f
    Raises click.UsageError without a terminal to confirm at, Failure if the answer is no.
    """
    confirm(f"Delete topic {name} and all its records?", is_sure=is_sure)
    node.once().delete_topic(name)
    print_result({"topic": name, "deleted": True}, f"Deleted topic {name}.", as_json=as_json)


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=topics)
@node_options
def roll(name: str, node: Node, as_json: bool) -> None:
    """Close the active segments.

    Sealed segments are uploaded to the object store.
    """
    rolled = node.once().roll_topic(name)
    if as_json:
        print_json(rolled)
    else:
        rows = [(partition["partition"], partition["sealed_end"]) for partition in rolled["partitions"]]
        print_table([Column("partition"), Column("sealed end")], rows)


def _with_retention(settings: tuple[str, ...], retention: str | None) -> tuple[str, ...]:
    return settings if retention is None else (*settings, f"retention={retention}")


def parse_settings(pairs: tuple[str, ...]) -> Json:
    """Returns `NAME=VALUE` pairs as JSON: numbers, quantities with a unit, true, false, null, or words.

    The node checks whether a setting exists. Raises click.BadParameter.
    """
    settings: Json = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="'--config'")
        settings[name] = _value_of(text)
    try:
        return with_units(settings, TOPIC_SETTINGS)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--config'") from error


def _unhealthy(partitions: list[Json]) -> list[tuple[str, str]]:
    """Returns the names of unhealthy states with their partitions, as rows of facts."""
    offline = [str(partition["partition"]) for partition in partitions if partition["leader"] is None]
    behind = [str(partition["partition"]) for partition in partitions if partition["under_replicated"]]
    facts = (("without a leader", offline), ("under-replicated", behind))
    return [(name, ", ".join(numbers)) for name, numbers in facts if numbers]


def print_partitions(partitions: list[Json]) -> None:
    """Prints a row per partition. If any has several replicas, adds their nodes and the largest lag."""
    is_replicated = any(len(partition["replicas"]) > 1 for partition in partitions)
    print_table(
        [
            Column("partition"),
            Column("leader"),
            *([Column("replicas", is_text=True)] if is_replicated else []),
            Column("in sync", is_text=is_replicated),
            *([Column("lag")] if is_replicated else []),
            Column("log start"),
            Column("high\nwatermark"),
            Column("log end"),
            Column("size"),
            Column("segments"),
        ],
        [
            (
                row["partition"],
                "-" if row["leader"] is None else row["leader"],
                *(_replicas(row) if is_replicated else (f"{len(row['in_sync'])}/{len(row['replicas'])}",)),
                *("-" if row[name] is None else row[name] for name in ("log_start", "high_watermark", "log_end")),
                "-" if row["size_bytes"] is None else format_bytes(row["size_bytes"]),
                "-" if row["segments"] is None else row["segments"],
            )
            for row in partitions
        ],
    )


def _replicas(partition: Json) -> tuple[object, ...]:
    lag = max(partition["lag"].values(), default="-")
    return (*(",".join(map(str, partition[name])) or "-" for name in ("replicas", "in_sync")), lag)


def print_settings(config: Json) -> None:
    """Prints settings, with a readable value beside those whose name has a unit."""
    rows = [(name, format_value(value), _meaning(name, value)) for name, value in config.items()]
    print_table([Column("setting", is_text=True), Column("value"), Column("", is_text=True)], rows)


def _value_of(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    try:
        return int(text)
    except ValueError:
        return text


def _meaning(name: str, value: Any) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return ""
    if value == -1:
        return "no bound"
    is_time = "_ms" in name and value >= 1000
    if is_time:
        return format_duration(value)
    return format_bytes(value) if "_bytes" in name and value >= 1000 else ""


def _total_lag(partitions: list[Json]) -> Json:
    """Returns the lag of a group over some partitions; those that cannot be asked now, or have no position, count 0."""
    return {
        "lag": sum(partition["lag"] or 0 for partition in partitions),
        "lag_bytes": sum(partition["lag_bytes"] or 0 for partition in partitions),
        "lag_ms": max(partition["lag_ms"] or 0 for partition in partitions),
    }
