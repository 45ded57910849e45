"""`penstock consume`: the records of a topic on standard output.

This file is the command; penstock/cli/printing.py does it.
"""

from __future__ import annotations

import asyncio

import click

from penstock.cli.node import Node, node_options

FORMS = ("ndjson-records", "values", "lines", "raw")


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="WHERE",
    help="earliest, latest, an offset, or a time such as 2013-01-01T05:00:00Z.",
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Only this partition. May be repeated.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until interrupted.")
@click.option("--count", "-n", type=click.IntRange(1), metavar="N", help="Stop after N records.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    default=FORMS[0],
    show_default=True,
    help="ndjson-records: a record object a line. values: a JSON value a line. lines: stored values, a line feed after "
    "each. raw: stored values, nothing between.",
)
@node_options
def consume(
    topic: str, start: str, partitions: tuple[int, ...], follow: bool, count: int | None, form: str,
    url: str, token: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Print the records of a topic.

    Without --follow it ends where the topic ended when it began. Records of one partition come in their order.
    """
    if as_json and form != FORMS[0]:
        raise click.UsageError("--json means --format ndjson-records", click.get_current_context())
    where = int(start) if start.isdecimal() else start  # what is a time, the node says
    from penstock.cli.printing import Wanted, print_records  # loads aiohttp: not for a wrong argument

    asyncio.run(print_records(Node(url, token), Wanted(topic, where, partitions, follow, count, form)))
