"""`penstock subscription`: creates, lists, describes, updates, pauses, replays and deletes push subscriptions."""

from __future__ import annotations

import time
from pathlib import Path

import click

from penstock.cli.commands import dead_letters
from penstock.cli.commands.dead_letters import SUBSCRIPTION, Maker
from penstock.cli.confirming import confirm, yes_option
from penstock.cli.groups import AliasGroup
from penstock.cli.listing import Page, page_options, print_page, text_columns
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import (
    Column,
    format_time,
    print_facts,
    print_json,
    print_note,
    print_result,
    print_table,
)
from penstock.transport.exchange import Json
from penstock.units import time_before

_secret_file = click.option(
    "--secret-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with one or two secrets, a line each.",
)


@click.group(cls=AliasGroup)
@shared_options
def subscription(**_: object) -> None:
    """Create, list, describe, update, pause, replay and delete push subscriptions."""


@subscription.command()
@click.argument("name")
@click.option("--to", "target", required=True, metavar="URL", help="The target.")
@click.option("--topic", "topics", multiple=True, required=True, help="A topic to deliver. May be repeated.")
@click.option(
    "--start",
    default="latest",
    metavar="POSITION",
    help="earliest, latest, a time or an age such as 1h; of a new one only.",
)
@click.option("-c", "--config", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the delivery.")
@click.option("--filter", "filters", multiple=True, metavar="CONDITION", help="Only records that meet it.")
@_secret_file
@node_options
def create(
    name: str, target: str, topics: tuple[str, ...], start: str, settings: tuple[str, ...], filters: tuple[str, ...],
    secret_file: Path | None, node: Node, as_json: bool,
) -> None:  # fmt: skip
    """Create or change a push subscription."""
    definition: Json = {"url": target, "topics": list(topics), "filter": list(filters), "start": _position(start)}
    definition["delivery"] = dict(_setting(text) for text in settings)
    if secret_file is not None:
        definition["secrets"] = secret_file.read_text().split()
    document = node.once().put_subscription(name, definition)
    if as_json:
        print_json(document)
        return
    click.echo(f"Subscription {name} is {document['state']}.")
    if "secret" in document:
        click.echo(document["secret"])
        print_note("This is the signing secret. It is not shown again.")


@subscription.command()
@click.argument("name")
@click.option("--to", "target", metavar="URL", help="The new target.")
@click.option(
    "-c", "--config", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the delivery; null ends it."
)
@click.option("--filter", "filters", multiple=True, metavar="CONDITION", help="Only records that meet it.")
@click.option("--no-filter", "is_unfiltered", is_flag=True, help="All records.")
@_secret_file
@node_options
def update(
    name: str, target: str | None, settings: tuple[str, ...], filters: tuple[str, ...], is_unfiltered: bool,
    secret_file: Path | None, node: Node, as_json: bool,
) -> None:  # fmt: skip
    """Change a subscription and leave the rest of it, and its positions.

    \f
    Raises click.UsageError without a change.
    """
    if filters and is_unfiltered:
        raise click.UsageError("--filter and --no-filter exclude each other", click.get_current_context())
    changes: Json = {}
    if target is not None:
        changes["url"] = target
    if settings:
        changes["delivery"] = dict(_setting(text) for text in settings)
    if filters or is_unfiltered:
        changes["filter"] = list(filters)
    if secret_file is not None:
        changes["secrets"] = secret_file.read_text().split()
    if not changes:
        text = "give a change: --to, --config, --filter, --no-filter or --secret-file"
        raise click.UsageError(text, click.get_current_context())
    _show(node.once().alter_subscription(name, changes), as_json=as_json)


@subscription.command("list")
@page_options
@node_options
def list_subscriptions(page: Page, node: Node, as_json: bool) -> None:
    """List subscriptions."""

    def row_of(listed: Json) -> tuple[str, ...]:
        return listed["subscription"], listed["state"], " ".join(listed["topics"]), listed["url"]

    columns = text_columns("subscription", "state", "topics", "target")
    empty = "There are no subscriptions. Create one with: penstock subscription create NAME"
    print_page(node.once().list_subscriptions(**page), "subscriptions", columns, row_of, empty, as_json=as_json)


@subscription.command()
@click.argument("name")
@node_options
def describe(name: str, node: Node, as_json: bool) -> None:
    """Show a subscription's positions and its last requests."""
    _show(node.once().describe_subscription(name), as_json=as_json)


@subscription.command()
@click.argument("name")
@node_options
def pause(name: str, node: Node, as_json: bool) -> None:
    """End deliveries until they are resumed."""
    _show(node.once().pause_subscription(name), as_json=as_json)


@subscription.command()
@click.argument("name")
@node_options
def resume(name: str, node: Node, as_json: bool) -> None:
    """Continue deliveries."""
    _show(node.once().resume_subscription(name), as_json=as_json)


@subscription.command()
@click.argument("name")
@click.argument("position")
@node_options
def replay(name: str, position: str, node: Node, as_json: bool) -> None:
    """Deliver from another position: earliest, latest, a time or an age such as 1h."""
    _show(node.once().replay_subscription(name, _position(position)), as_json=as_json)


@subscription.command("replay-dead-letters")
@click.argument("name")
@click.option("--topic", metavar="TOPIC", help="The dead-letter topic; by default that of the subscription.")
@node_options
def replay_dead_letters(name: str, topic: str | None, node: Node, as_json: bool) -> None:
    """Produce a subscription's dead letters back to where they came from, so that they are delivered again.

    \f
    Raises Failure without a dead-letter topic, and if the node rejected some: they wait for the next run.
    """
    client = node.once()
    topic = topic or client.describe_subscription(name)["delivery"]["dead_letter_topic"]
    dead_letters.replay(client, Maker(SUBSCRIPTION, name), topic, as_json=as_json)


@subscription.command()
@click.argument("name")
@yes_option
@node_options
def delete(name: str, is_sure: bool, node: Node, as_json: bool) -> None:
    """Delete a subscription with its positions.

    \f
    Raises click.UsageError without a terminal to confirm at, Failure if the answer is no.
    """
    confirm(f"Delete subscription {name} and its positions?", is_sure=is_sure)
    node.once().delete_subscription(name)
    print_result({"subscription": name, "deleted": True}, f"Deleted subscription {name}.", as_json=as_json)


def _show(document: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    names = ("subscription", "state", "url", "delivered", "failed", "waiting", "dead_lettered", "last_error")
    print_facts((name.replace("_", " "), document[name]) for name in names)
    columns = [Column("topic", is_text=True), Column("partition"), Column("next offset")]
    print_table(columns, [(row["topic"], row["partition"], row["offset"]) for row in document["offsets"]])
    if document["attempts"]:
        columns = [Column("sent", is_text=True), Column("id", is_text=True), Column("records"), Column("attempt")]
        columns += [Column("status"), Column("ms"), Column("error", is_text=True)]
        print_table(columns, [_attempt(attempt) for attempt in document["attempts"]])


def _attempt(attempt: Json) -> tuple[object, ...]:
    names = ("message_id", "record_count", "attempt", "status", "latency_ms", "error")
    return format_time(attempt["at_ms"]), *(attempt[name] for name in names)


def _position(text: str) -> str | int:
    time_ms = time_before(text, round(time.time() * 1000))
    return int(text) if text.isdecimal() else text if time_ms is None else time_ms


def _setting(text: str) -> tuple[str, str | int | None]:
    """Returns the name and the value of a setting. Raises click.UsageError."""
    name, is_pair, value = text.partition("=")
    if not is_pair:
        raise click.UsageError(f"--config {text} is not of the form NAME=VALUE")
    if value == "null":
        return name, None
    return name, int(value) if value.isdecimal() else value
