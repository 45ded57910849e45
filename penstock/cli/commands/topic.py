"""`penstock topic`: create, list, describe, alter, delete and roll."""

from __future__ import annotations

import sys
from typing import Any

import click

from penstock.admin import api
from penstock.cli.endings import Failure
from penstock.cli.node import Node, node_options
from penstock.cli.output import (
    Column,
    counted,
    print_facts,
    print_json,
    print_table,
    shown,
    shown_bytes,
    shown_duration,
    tell,
)
from penstock.transport.exchange import Json

_WORDS = {"true": True, "false": False, "null": None}
_CONFIG = click.option(
    "--config", "-c", "settings", multiple=True, metavar="NAME=VALUE", help="A topic setting. May be repeated."
)


@click.group()
def topic() -> None:
    """Create, list, describe, alter, delete and roll topics."""


@topic.command()
@click.argument("name", metavar="TOPIC")
@click.option("--partitions", "-p", type=click.IntRange(1), help="How many partitions.  [default: the node's]")
@click.option(
    "--replication-factor", type=click.IntRange(1), help="On how many nodes each record is.  [default: the node's]"
)
@_CONFIG
@node_options
def create(
    name: str, partitions: int | None, replication_factor: int | None, settings: tuple[str, ...],
    url: str, token: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Create a topic. The same again changes nothing and is no error."""
    config = parse_settings(settings) or None
    answer = Node(url, token).once().send(api.create_topic(name, partitions, replication_factor, config))
    described = answer.json()
    if as_json:
        print_json(described)
        return
    is_new = answer.status == 201
    count = counted(len(described["partitions"]), "partition")
    click.echo(f"{'Created' if is_new else 'There is already'} topic {name} with {count}.")


@topic.command("list")
@node_options
def list_topics(url: str, token: str | None, as_json: bool) -> None:
    """List all topics."""
    document = Node(url, token).once().list_topics()
    if as_json:
        print_json(document)
    elif not document["topics"]:
        tell("There are no topics. Create one with: penstock topic create NAME")
    else:
        rows = [(one["topic"], one["partitions"], one["replication_factor"]) for one in document["topics"]]
        print_table([Column("topic", is_text=True), Column("partitions"), Column("replication factor")], rows)


@topic.command()
@click.argument("name", metavar="TOPIC")
@node_options
def describe(name: str, url: str, token: str | None, as_json: bool) -> None:
    """Show a topic's partitions and settings."""
    described = Node(url, token).once().describe_topic(name)
    if as_json:
        print_json(described)
        return
    partitions = described["partitions"]
    led = [one for one in partitions if one["log_end"] is not None]  # of the others nobody knows the positions now
    records = sum(one["high_watermark"] - one["log_start"] for one in led)
    size_bytes = sum(one["size_bytes"] for one in led)
    print_facts(
        [
            ("topic", described["topic"]),
            ("id", described["topic_id"]),
            ("replication factor", described["replication_factor"]),
            ("records", records),
            ("on local disk", shown_bytes(size_bytes)),
            *_in_need(partitions),
        ]
    )
    click.echo()
    print_partitions(partitions)
    click.echo()
    print_settings(described["config"])


@topic.command()
@click.argument("name", metavar="TOPIC")
@click.option("--partitions", "-p", type=click.IntRange(1), help="Grow the topic to so many partitions.")
@click.option("--replication-factor", type=click.IntRange(1, 16), help="Store each record on so many nodes.")
@_CONFIG
@node_options
def alter(
    name: str, partitions: int | None, replication_factor: int | None, settings: tuple[str, ...],
    url: str, token: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Change settings of a topic; those not named stay.

    A topic never loses partitions. When it gains some, most keys go to another partition from then on, so the order of
    records with one key holds before and after, not across.
    """
    wanted = parse_settings(settings)
    if not wanted and partitions is None and replication_factor is None:
        text = "nothing to change: give --config NAME=VALUE, --partitions N or --replication-factor N"
        raise click.UsageError(text, click.get_current_context())
    described = (
        Node(url, token)
        .once()
        .alter_topic(name, wanted or None, partitions=partitions, replication_factor=replication_factor)
    )
    if as_json:
        print_json(described)
        return
    if partitions is not None:
        click.echo(f"Topic {name} has {counted(len(described['partitions']), 'partition')}.")
    if replication_factor is not None:
        click.echo(
            f"Topic {name} is to be on {counted(replication_factor, 'node')}; see penstock cluster reassignments."
        )
    if wanted:
        print_settings({key: described["config"][key] for key in wanted})


@topic.command()
@click.argument("name", metavar="TOPIC")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask.")
@node_options
def delete(name: str, is_sure: bool, url: str, token: str | None, as_json: bool) -> None:
    """Delete a topic and all its records."""
    if not is_sure:
        if not sys.stdin.isatty():
            raise click.UsageError("deleting without a terminal to ask at needs --yes", click.get_current_context())
        if not click.confirm(f"Delete topic {name} and all its records?", err=True):
            raise Failure("nothing was deleted")
    Node(url, token).once().delete_topic(name)
    if as_json:
        print_json({"topic": name, "deleted": True})
    else:
        click.echo(f"Deleted topic {name}.")


@topic.command()
@click.argument("name", metavar="TOPIC")
@node_options
def roll(name: str, url: str, token: str | None, as_json: bool) -> None:
    """Seal what is written so far.

    Sealed segments are what goes to the object store.
    """
    rolled = Node(url, token).once().roll_topic(name)
    if as_json:
        print_json(rolled)
    else:
        rows = [(one["partition"], one["sealed_end"]) for one in rolled["partitions"]]
        print_table([Column("partition"), Column("sealed end")], rows)


def parse_settings(pairs: tuple[str, ...]) -> Json:
    """`NAME=VALUE` as JSON: numbers, true, false, null, or words. Whether that is a setting the node says."""
    settings: Json = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="'--config'")
        settings[name] = _value_of(text)
    return settings


def _in_need(partitions: list[Json]) -> list[tuple[str, str]]:
    """What of a cluster somebody may have to see to."""
    offline = [str(one["partition"]) for one in partitions if one["leader"] is None]
    behind = [str(one["partition"]) for one in partitions if one["under_replicated"]]
    facts = (("without a leader", offline), ("under-replicated", behind))
    return [(name, ", ".join(numbers)) for name, numbers in facts if numbers]


def print_partitions(partitions: list[Json]) -> None:
    """With several replicas also which nodes they are on, and how far the last of them is behind."""
    is_replicated = any(len(one["replicas"]) > 1 for one in partitions)
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
                one["partition"],
                "-" if one["leader"] is None else one["leader"],
                *(_replicas(one) if is_replicated else (f"{len(one['in_sync'])}/{len(one['replicas'])}",)),
                *("-" if one[name] is None else one[name] for name in ("log_start", "high_watermark", "log_end")),
                "-" if one["size_bytes"] is None else shown_bytes(one["size_bytes"]),
                "-" if one["segments"] is None else one["segments"],
            )
            for one in partitions
        ],
    )


def _replicas(partition: Json) -> tuple[object, ...]:
    lag = max(partition["lag"].values(), default="-")
    return (*(",".join(map(str, partition[name])) or "-" for name in ("replicas", "in_sync")), lag)


def print_settings(config: Json) -> None:
    """Settings with what their numbers mean, as far as their names tell the unit."""
    rows = [(name, shown(value), _meaning(name, value)) for name, value in config.items()]
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
        return shown_duration(value)
    return shown_bytes(value) if "_bytes" in name and value >= 1000 else ""
