"""`penstock topic delete-records` and `penstock topic erase`: delete records of a topic by position or by key."""

from __future__ import annotations

import time

import click

from penstock.admin.single_request import SingleRequestClient
from penstock.cli.completing import topics
from penstock.cli.confirming import confirm, yes_option
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.node import Node, node_options
from penstock.cli.output import Column, print_json, print_note, print_table
from penstock.errors import ProblemError
from penstock.units import time_before


@click.command("delete-records")
@click.argument("name", metavar="TOPIC", shell_complete=topics)
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Only in this partition.  [default: in all]")
@click.option(
    "--before",
    required=True,
    metavar="WHERE",
    help="The first record that stays: an offset, a time, an age such as 7d, or latest to delete all.",
)
@yes_option
@node_options
def delete_records(name: str, partition: int | None, before: str, is_sure: bool, node: Node, as_json: bool) -> None:
    """Delete the records of a topic before a position, permanently and for all readers.

    \f
    Raises click.UsageError for an offset in several partitions, and as `confirm` does.
    """
    once = node.once()
    partitions = [partition] if partition is not None else range(len(once.describe_topic(name)["partitions"]))
    if before.isdecimal() and len(partitions) > 1:
        text = f"an offset needs --partition: {name} has {len(partitions)}"
        raise click.UsageError(text, click.get_current_context())
    ends = {number: _first_kept(once, name, number, before) for number in partitions}
    shown = ", ".join(f"{number}: {end:,}" for number, end in ends.items())
    confirm(f"Delete all records of topic {name} below these offsets ({shown})?", is_sure=is_sure)
    deleted = [once.delete_records(name, number, end) for number, end in ends.items()]
    if as_json:
        print_json({"topic": name, "partitions": deleted})
    else:
        rows = [(entry["partition"], entry["log_start"]) for entry in deleted]
        print_table([Column("partition"), Column("log start")], rows)


@click.command()
@click.argument("name", metavar="TOPIC", shell_complete=topics)
@click.option("--key", required=True, help="The key of the records, as text.")
@click.option(
    "--partition", type=click.IntRange(0), help="The partition of records that were sent to one by its number."
)
@node_options
def erase(name: str, key: str, partition: int | None, node: Node, as_json: bool) -> None:
    """Write a tombstone for a key of a compacted topic. Compaction then removes all records of the key.

    \f
    Raises Failure for a topic that is not compacted.
    """
    from penstock.sync import Client  # with its thread and event loop, which no other command here needs

    policy = node.once().describe_topic(name)["config"]["cleanup_policy"]
    if "compact" not in policy:
        text = (
            f"topic {name} is not compacted, so no record is removed by its key: retention removes all records by age"
        )
        raise Failure(f"{text}; penstock ingest erase drops rows of tables", ExitCode.REFUSED)
    with Client(node.url, token=node.token, cacert=node.cacert) as client, client.producer() as producer:
        stored = producer.send(name, None, key=key, partition=partition).result()
    if as_json:
        print_json({"topic": name, "partition": stored.partition, "offset": stored.offset})
    else:
        click.echo(f"Wrote a tombstone at offset {stored.offset} of partition {stored.partition}.")
        print_note("Compaction removes earlier records of the key, and the tombstone itself after delete_retention_ms.")


def _first_kept(once: SingleRequestClient, name: str, partition: int, before: str) -> int:
    """Returns the offset of the first record that stays. Raises Failure for a text that the node cannot read."""
    if before.isdecimal():
        return int(before)
    time_ms = time_before(before, round(time.time() * 1000))
    start = None if before == "latest" else before if time_ms is None else time_ms
    try:
        bounds = once.find_positions(name, partition, start)
    except ProblemError as error:
        if error.members.get("parameter") != "timestamp":
            raise
        words = "give an offset, an age such as 7d, latest, or a time with a zone such as 2013-01-01T05:00:00Z"
        raise Failure(f"--before is {before!r}; {words} [{error.code}]", ExitCode.REFUSED) from error
    end: int = bounds["high_watermark"] if bounds["offset"] is None else bounds["offset"]
    return end
