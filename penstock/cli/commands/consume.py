"""`penstock consume`: prints the records of a topic, or of a group's topics, on standard output.

This file parses the options; penstock/cli/records/printing.py prints.
"""

from __future__ import annotations

import asyncio
import re
import time

import click

from penstock.cli.completing import topics
from penstock.cli.node import Node, node_options
from penstock.cli.records.record_format import parse_template
from penstock.units import time_before

FORMS = ("ndjson-records", "values", "lines", "raw")


@click.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, shell_complete=topics)
@click.option("--group", metavar="NAME", help="Read from this group, and commit or accept what is printed.")
@click.option(
    "--topics-pattern",
    metavar="REGEX",
    help="With --group: also the topics whose complete name matches (RE2), and those that are made later.",
)
@click.option("--topics-exclude", metavar="REGEX", help="With --topics-pattern: not the topics that match this.")
@click.option("--member", "member_id", metavar="ID", help="The member's name in the group.  [default: a random one]")
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="earliest, latest, an offset, a time such as 2013-01-01T05:00:00Z, or an age such as 1h.  [default: earliest]",
)
@click.option("--tail", type=click.IntRange(1), metavar="N", help="Begin with the last N records of each partition.")
@click.option(
    "--until", metavar="WHERE", help="End before this offset, or at the first record of this time (or age, such as 1h)."
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Only this partition. May be repeated.",
)
@click.option("--follow", "-f", is_flag=True, help="Wait for new records until interrupted.")
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
@click.option(
    "--output",
    metavar="TEMPLATE",
    help="A line for each record: '{partition}/{offset} {time} {key} {value}'; also {topic}, {headers} and {timestamp} "
    "(milliseconds). Times are local on a terminal, else UTC.",
)
@click.option("--grep", metavar="REGEX", help="Only records whose value or key matches this expression.")
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="CONDITION",
    help="Only records that the node finds to meet it: key^=eu-, header.type=order.paid, value/customer/id=42. May be "
    "repeated.",
)
@node_options
def consume(
    names: tuple[str, ...], group: str | None, member_id: str | None, start: str | None, tail: int | None,
    until: str | None, partitions: tuple[int, ...], follow: bool, count: int | None, form: str, output: str | None,
    grep: str | None, filters: tuple[str, ...], topics_pattern: str | None, topics_exclude: str | None,
    node: Node, as_json: bool,
) -> None:  # fmt: skip
    """Print the records of a topic.

    Without --follow it ends where the topic ended at the start. Records of one partition come in their order. With
    --group it prints those of several topics, and ends once half a second brings none. If the group is a share
    group, it prints records that no other caller has, and accepts them.

    \f
    Raises click.UsageError or click.BadParameter for options that are wrong.
    """
    if as_json and form != FORMS[0]:
        raise click.UsageError("--json means --format ndjson-records", click.get_current_context())
    for option, other, is_wrong in (
        ("--tail", "--from", tail is not None and start is not None),
        ("--until", "--follow", until is not None and follow),
        ("--output", "--format", output is not None and (as_json or form != FORMS[0])),
        ("--group", "--from", group is not None and start is not None),
        ("--group", "--tail", group is not None and tail is not None),
        ("--group", "--until", group is not None and until is not None),
        ("--group", "--partition", group is not None and bool(partitions)),
    ):
        if is_wrong:
            raise click.UsageError(f"{option} and {other} exclude each other", click.get_current_context())
    if not names and (group is None or topics_pattern is None):
        raise click.UsageError("name a topic, or give --group and --topics-pattern", click.get_current_context())
    if topics_exclude is not None and topics_pattern is None:
        raise click.UsageError("--topics-exclude needs --topics-pattern", click.get_current_context())
    if topics_pattern is not None and group is None:
        raise click.UsageError("--topics-pattern needs --group", click.get_current_context())
    if group is None and (len(names) > 1 or member_id is not None):
        what = "--member needs" if member_id is not None else "several topics need"
        raise click.UsageError(f"{what} --group", click.get_current_context())
    try:
        pattern = None if grep is None else re.compile(grep.encode())
        template = None if output is None else parse_template(output)
    except (re.error, ValueError) as error:
        name = "--grep" if isinstance(error, re.error) else "--output"
        raise click.BadParameter(str(error), param_hint=f"'{name}'") from error
    from penstock.cli.records.printing import (
        ConsumeArguments,
        print_group,
        print_records,
    )  # loads aiohttp, so only after the arguments are checked
    from penstock.consumer.group_member import GroupTerms

    begin, end = _place("earliest" if start is None else start), None if until is None else _place(until)
    arguments = ConsumeArguments(
        names[0] if names else "", begin, partitions, follow, count, form, tail, end, pattern, template, filters
    )
    if group is None:
        asyncio.run(print_records(node, arguments))
    else:
        terms = GroupTerms(group, names, member_id or "", filters=filters)
        terms = terms._replace(topics_pattern=topics_pattern, topics_exclude=topics_exclude)
        asyncio.run(print_group(node, arguments, terms))


def _place(text: str) -> int | str:
    """Returns an offset as a number, and a time as text, which the node parses."""
    time_ms = time_before(text, round(time.time() * 1000))
    return int(text) if text.isdecimal() else text if time_ms is None else str(time_ms)
