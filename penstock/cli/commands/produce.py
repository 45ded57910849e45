"""`penstock produce`: sends files or standard input to a topic.

NDJSON goes to the node unparsed, in bodies of whole lines. One request is in flight at a time, so each partition keeps
the order of the input. This file parses the options; penstock/cli/records/sending.py sends.
"""

from __future__ import annotations

from typing import get_args

import click

from penstock.cli.completing import topics
from penstock.cli.node import Node, node_options
from penstock.cli.output import format_bytes, format_count, format_rate, print_json
from penstock.options import Acks

MIB = 1024 * 1024


@click.command()
@click.argument("topic", shell_complete=topics)
@click.argument("files", nargs=-1, type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--format",
    "form",
    type=click.Choice(["ndjson", "records", "lines", "raw"]),
    default="ndjson",
    show_default=True,
    help="ndjson: a line is a JSON value. records: a line is a record object, as `consume` prints. "
    "lines: a line is text. raw: a file is one record.",
)
@click.option("--key-pointer", metavar="POINTER", help="Take keys from the values, by JSON Pointer: /user/id")
@click.option("--key-field", metavar="NAME", help="Take keys from this field of the values.")
@click.option("--key", metavar="TEXT", help="The same key for every record.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record. May be repeated."
)
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Send all to this partition.")
@click.option(
    "--acks",
    type=click.Choice(get_args(Acks)),
    default="all",
    show_default=True,
    help="The acknowledgement to wait for. 0: none. 1: the leader's write. all, or -1: every in-sync replica.",
)
@click.option(
    "--batch-bytes",
    type=click.IntRange(1, 8 * MIB),
    default=1 * MIB,
    show_default=True,
    metavar="BYTES",
    help="The approximate size of one request.",
)
@node_options
def produce(
    topic: str, files: tuple[str, ...], form: str, key_pointer: str | None, key_field: str | None, key: str | None,
    headers: tuple[str, ...], partition: int | None, acks: Acks, batch_bytes: int, node: Node, as_json: bool,
) -> None:  # fmt: skip
    """Send files or standard input to a topic.

    Requests that fail temporarily are retried for 30 seconds. A retry stores nothing twice: each request has an
    Idempotency-Key.
    """
    pointer = _pointer_of(form, key_pointer, key_field, key)
    named = _parse_headers(headers, form, pointer)
    import asyncio

    from penstock.cli.records.sending import Target, send_all  # loads aiohttp, so only after the arguments are checked

    target = Target(topic, form, partition, key, pointer, acks, batch_bytes, named)
    sent = asyncio.run(send_all(node, target, files or ("-",)))
    if as_json:
        print_json(
            {"topic": topic, "records": sent.records, "bytes": sent.size_bytes, "seconds": round(sent.seconds, 3)}
        )
        return
    rates = (
        f"{format_rate(sent.records, sent.seconds)} records/s, {format_bytes(int(sent.size_bytes / sent.seconds))}/s"
    )
    click.echo(
        f"{format_count(sent.records, 'record')}, {format_bytes(sent.size_bytes)} in {sent.seconds:.1f} s ({rates})"
    )


def _pointer_of(form: str, key_pointer: str | None, key_field: str | None, key: str | None) -> str | None:
    given = [
        name for name, value in (("--key-pointer", key_pointer), ("--key-field", key_field), ("--key", key)) if value
    ]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other", click.get_current_context())
    if given and (form == "records" or (form != "ndjson" and given != ["--key"])):
        raise click.UsageError(f"{given[0]} does not go with --format {form}", click.get_current_context())
    if key_field is not None:
        return "/" + key_field.replace("~", "~0").replace("/", "~1")
    return key_pointer


def _parse_headers(pairs: tuple[str, ...], form: str, pointer: str | None) -> tuple[tuple[str, str], ...]:
    named = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="'--header'")
        named.append((name, value))
    other = "--format records" if form == "records" else "--key-pointer or --key-field" if pointer is not None else None
    if named and other:
        raise click.UsageError(f"--header does not go with {other}", click.get_current_context())
    return tuple(named)
