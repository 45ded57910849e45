"""`penstock group`: lists, describes, explains, watches, resets and deletes consumer groups."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import click
import orjson

from penstock.cli.commands.dead_letters import GROUP, Maker, replay
from penstock.cli.confirming import confirm, yes_option
from penstock.cli.failures import Failure
from penstock.cli.groups import AliasGroup
from penstock.cli.listing import Page, page_options, print_page
from penstock.cli.node import Node, node_options, shared_options
from penstock.cli.output import (
    Column,
    format_bytes,
    format_duration,
    format_time,
    print_facts,
    print_json,
    print_limits,
    print_note,
    print_result,
    print_table,
)
from penstock.transport.exchange import Json
from penstock.units import MEANING, parse_quantity

_SECONDS = range(10**9, 10**10)  # the years 2001 to 2286; as milliseconds January to April 1970


@click.group(cls=AliasGroup)
@shared_options
def group(**_: object) -> None:
    """List, describe, explain, reset and delete consumer groups."""


@group.command("list")
@page_options
@node_options
def list_groups(page: Page, node: Node, as_json: bool) -> None:
    """List groups."""
    names = ("group", "state", "members", "lag_records", "lag_s")
    columns = [Column(name, is_text=name in ("group", "state")) for name in names]
    empty = "There are no groups. The first member of a group creates it."

    def row_of(group: Json) -> list[object]:
        return [group.get(name) for name in names]  # an older node has no lag

    print_page(node.once().list_groups(**page), "groups", columns, row_of, empty, as_json=as_json)


@group.command()
@click.argument("name", metavar="GROUP")
@node_options
def describe(name: str, node: Node, as_json: bool) -> None:
    """Show a group's members, positions and lag."""
    described = node.once().describe_group(name)
    if as_json:
        print_json(described)
        return
    print_limits(described)
    partitions = described["partitions"]
    lag = sum(partition["lag"] or 0 for partition in partitions)
    print_facts([("group", name), ("state", described["state"]), ("members", len(described["members"])), ("lag", lag)])
    if described.get("kind") == "share":
        counts = ("in_flight", "available", "delayed", "dead_letters_pending", "dead_letters", "dropped")
        print_facts([(count.replace("_", " "), sum(partition[count] for partition in partitions)) for count in counts])
    if described["members"]:
        click.echo()
        columns = [Column(name, is_text=True) for name in ("member", "client", "address", "rack")]
        print_table(
            [*columns, Column("partitions"), Column("to give up")], [_member(member) for member in described["members"]]
        )
    if partitions:
        click.echo()
        _print_partitions(partitions)


@group.command()
@click.argument("name", metavar="GROUP")
@node_options
def explain(name: str, node: Node, as_json: bool) -> None:
    """Show why a group lags or rebalances, and its last events."""
    explanation = node.once().explain_group(name)
    if as_json:
        print_json(explanation)
        return
    print_limits(explanation)
    _print_findings(explanation)
    if explanation["events"]:
        click.echo()
        columns = [Column(header, is_text=True) for header in ("time", "event", "member", "detail")]
        print_table([*columns, Column("times")], [_event(event) for event in explanation["events"]])


@group.command()
@click.argument("name", metavar="GROUP")
@click.option(
    "--interval-ms", type=click.IntRange(100), default=2000, show_default=True, help="Time between two views."
)
@click.option("--count", type=click.IntRange(1), help="The number of views. By default it runs until Ctrl-C.")
@node_options
def watch(name: str, interval_ms: int, count: int | None, node: Node, as_json: bool) -> None:
    """Show a group's lag and what holds it up, over and over."""
    once = node.once()
    for number in itertools.count(1):
        explanation, described = once.explain_group(name), once.describe_group(name)
        if as_json:
            click.echo(orjson.dumps({"group": described, "explanation": explanation}))
        else:
            click.clear()  # nothing is printed for it outside of a terminal
            _print_findings(explanation)
            click.echo()
            _print_partitions(described["partitions"])
        if number == count:
            return
        time.sleep(interval_ms / 1000)


@group.command()
@click.argument("name", metavar="GROUP")
@click.option("--to-earliest", is_flag=True, help="To the first records.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-time", metavar="TIME", help="To the first records at or after a time: RFC 3339 or milliseconds.")
@click.option("--ago", metavar="DURATION", help="To the first records of this time before now, for example 90min.")
@click.option(
    "--shift", type=int, metavar="RECORDS", help="Move the position by this many records; negative moves back."
)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="To the positions of a JSON file, in the form of GET /v1/groups/{group}/offsets.",
)
@click.option("--topic", "topics", multiple=True, help="Only this topic. May be repeated.")
@click.option("--dry-run", is_flag=True, help="Only show the outcome.")
@click.option("--force", is_flag=True, help="Reset though the group has members.")
@node_options
def reset(
    name: str, to_earliest: bool, to_latest: bool, to_time: str | None, ago: str | None, shift: int | None,
    from_file: Path | None, topics: tuple[str, ...], dry_run: bool, force: bool, node: Node, as_json: bool,
) -> None:  # fmt: skip
    """Move a group to other positions, and show them.

    \f
    Raises click.UsageError, click.BadParameter, Failure.
    """
    ways = [to_earliest, to_latest, *(way is not None for way in (to_time, ago, shift, from_file))]
    if sum(ways) != 1:
        raise click.UsageError("give one of --to-earliest, --to-latest, --to-time, --ago, --shift and --from-file")
    time: str | int | None = int(to_time) if to_time is not None and to_time.isdecimal() else to_time
    if isinstance(time, int) and time in _SECONDS:
        print_note(f"--to-time {time} is a time in 1970: give milliseconds, not seconds.")
    document = node.once().reset_group(
        name,
        to="earliest" if to_earliest else "latest" if to_latest else time,
        ago_ms=None if ago is None else _milliseconds(ago),
        shift=shift,
        offsets=None if from_file is None else _positions(from_file),
        topics=list(topics) or None,
        is_dry_run=dry_run,
        is_forced=force,
    )
    if as_json:
        print_json(document)
        return
    rows = [
        (row["topic"], row["partition"], _or_dash(row["previous_offset"]), row["offset"]) for row in document["offsets"]
    ]
    print_table([Column("topic", is_text=True), Column("partition"), Column("from"), Column("to")], rows)
    if dry_run:
        print_note("Nothing was changed.")


@group.command("replay-dead-letters")
@click.argument("name", metavar="GROUP")
@click.option("--topic", metavar="TOPIC", help="The dead-letter topic; by default that of the group's settings.")
@node_options
def replay_dead_letters(name: str, topic: str | None, node: Node, as_json: bool) -> None:
    """Produce a group's dead letters back to where they came from.

    \f
    Raises Failure without a dead-letter topic, and if the node rejected some: they wait for the next run.
    """
    client = node.once()
    topic = topic or client.describe_group(name)["config"].get("dead_letter_topic")
    replay(client, Maker(GROUP, name), topic, as_json=as_json)


@group.command()
@click.argument("name", metavar="GROUP")
@click.option("--topic", metavar="TOPIC", help="Only the positions of this topic.")
@yes_option
@node_options
def delete(name: str, topic: str | None, is_sure: bool, node: Node, as_json: bool) -> None:
    """Delete a group with its positions.

    \f
    Raises click.UsageError without a terminal to confirm at, Failure if the answer is no.
    """
    if topic is not None:
        confirm(f"Delete the positions of group {name} in topic {topic}?", is_sure=is_sure)
        left = node.once().delete_group_offsets(name, topic)
        print_result(left, f"Deleted the positions of group {name} in topic {topic}.", as_json=as_json)
        return
    confirm(f"Delete group {name} and its positions?", is_sure=is_sure)
    node.once().delete_group(name)
    print_result({"group": name, "deleted": True}, f"Deleted group {name}.", as_json=as_json)


def _print_findings(explanation: Json) -> None:
    print_facts([("group", explanation["group"]), ("state", explanation["state"]), ("lag", explanation["lag"])])
    click.echo()
    if explanation["findings"]:
        columns = [Column("cause", is_text=True), Column("explanation", is_text=True)]
        print_table(columns, [(finding["cause"], finding["text"]) for finding in explanation["findings"]])
    else:
        click.echo("Nothing holds the group up.")


def _print_partitions(partitions: list[Json]) -> None:
    columns = [Column("topic", is_text=True), Column("partition"), Column("member", is_text=True), Column("offset")]
    columns += [Column("high\nwatermark"), Column("lag"), Column("lag bytes"), Column("behind")]
    print_table(columns, [_partition(partition) for partition in partitions])


def _event(event: Json) -> tuple[object, ...]:
    texts = (event["member_id"] or "-", event["detail"] or "-")
    return format_time(event["at_ms"]), event["cause"], *texts, event["count"]


def _positions(path: Path) -> list[Json]:
    """Returns the positions of a file. Raises Failure."""
    try:
        document = orjson.loads(path.read_bytes())
        return [{name: row[name] for name in ("topic", "partition", "offset")} for row in document["offsets"]]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        text = f'{path} is not of the form {{"offsets": [{{"topic": …, "partition": …, "offset": …}}]}}'
        raise Failure(text) from None


def _milliseconds(text: str) -> int:
    """Returns a duration. Raises click.BadParameter."""
    quantity = parse_quantity(text)
    if quantity is None or quantity.kind != "ms":
        raise click.BadParameter(f"{text!r} is not {MEANING['ms']}", param_hint="'--ago'")
    return quantity.amount


def _member(member: Json) -> tuple[object, ...]:
    client = (member["client_id"] or "-", member["client_address"], member.get("rack") or "-")
    return member["member_id"], *client, len(member["assignment"]), len(member["revoking"])


def _partition(partition: Json) -> tuple[object, ...]:
    lag_bytes = "-" if partition["lag_bytes"] is None else format_bytes(partition["lag_bytes"])
    behind = "-" if partition["lag_ms"] is None else format_duration(partition["lag_ms"])
    positions = (_or_dash(partition[name]) for name in ("offset", "high_watermark", "lag"))
    return partition["topic"], partition["partition"], partition["member_id"] or "-", *positions, lag_bytes, behind


def _or_dash(value: int | None) -> object:
    return "-" if value is None else value
