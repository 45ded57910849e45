"""`penstock produce`: files or standard input to a topic.

NDJSON goes to the node as it is, in bodies of whole lines; nothing is parsed here. One request at a time, so the
order of the input is the order in each partition. This file is the command; penstock/cli/sending.py does it.
"""

from __future__ import annotations

import click

from penstock.cli.node import Node, node_options
from penstock.cli.output import counted, print_json, shown_bytes, shown_rate

MIB = 1024 * 1024


@click.command()
@click.argument("topic")
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
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Send all to this partition.")
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all", "-1"]),
    default="all",
    show_default=True,
    help="What an answer waits for. 0: nothing. 1: the write at the leader. all, or -1: every replica in sync.",
)
@click.option(
    "--batch-bytes",
    type=click.IntRange(1, 8 * MIB),
    default=1 * MIB,
    show_default=True,
    metavar="BYTES",
    help="About how much to send in one request.",
)
@node_options
def produce(
    topic: str, files: tuple[str, ...], form: str, key_pointer: str | None, key_field: str | None, key: str | None,
    partition: int | None, acks: str, batch_bytes: int, url: str, token: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Send files or standard input to a topic.

    Requests that fail for the moment are repeated for 30 seconds. A repeat stores nothing twice: each request has an
    Idempotency-Key.
    """
    pointer = _pointer_of(form, key_pointer, key_field, key)
    import asyncio

    from penstock.cli.sending import Target, send_all  # loads aiohttp: not for a wrong argument

    target = Target(topic, form, partition, key, pointer, acks, batch_bytes)
    sent = asyncio.run(send_all(Node(url, token), target, files or ("-",)))
    if as_json:
        print_json(
            {"topic": topic, "records": sent.records, "bytes": sent.size_bytes, "seconds": round(sent.seconds, 3)}
        )
        return
    rates = f"{shown_rate(sent.records, sent.seconds)} records/s, {shown_bytes(int(sent.size_bytes / sent.seconds))}/s"
    click.echo(f"{counted(sent.records, 'record')}, {shown_bytes(sent.size_bytes)} in {sent.seconds:.1f} s ({rates})")


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
