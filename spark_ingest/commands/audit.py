"""`penstock ingest audit`: compares the counts of records at client, gateway, store and tables. Asks no node."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import orjson

from penstock.cli.failures import Failure
from penstock.cli.output import Column, format_count, print_json, print_note, print_table
from spark_ingest.commands.job_file import config_option
from spark_ingest.options import Pattern, Seconds, job_option, json_option, output_option, store_option, topic_filter

PERIOD_MS = 600_000
LOSSES_SHOWN = 100


@click.command()
@config_option
@store_option
@output_option
@job_option
@click.option("--topics", type=Pattern(), default=".*", show_default=True, help="Which topics to compare.")
@click.option(
    "--clients",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Counts of a client (`take_accepted_counts`); may be repeated, for all clients of the topics.",
)
@click.option(
    "--settled",
    "settled_s",
    type=Seconds(),
    default="3h",
    show_default=True,
    metavar="DURATION",
    help="Compare ten minutes that ended this long before the last commit.",
)
@json_option
def audit(
    store: str,
    output: str,
    job_name: str,
    topics: re.Pattern[str],
    files: tuple[Path, ...],
    settled_s: float,
    as_json: bool,
) -> None:
    """Name the tier and the ten minutes at which records were lost: gateway, store or tables.

    Reads the headers of the whole log in the store. Ends with 1 if a tier has fewer records than the one before.

    \f
    Raises Failure.
    """
    from spark_ingest.inspection.tiers import compare_tiers
    from spark_ingest.output.stores import open_output_store, open_source_store
    from spark_ingest.protocol.history import History

    clients = _read_clients(files)
    source, target = open_source_store(store), open_output_store(output, is_written=False)
    commits = list(History(target, job_name).commits())
    compared = compare_tiers(source, commits, clients, topic_filter(topics, None), int(settled_s * 1000))
    losses = [loss for counts in compared.values() for loss in counts.losses]
    document: dict[str, Any] = {
        "topics": {
            topic: {"records": counts.totals, "pending": counts.pending, "not_compared": counts.reason}
            for topic, counts in compared.items()
        },
        "losses": [{**loss._asdict(), "from_ms": None, "from": _time(loss.from_ms)} for loss in losses],
    }
    for loss in document["losses"]:
        del loss["from_ms"]
    if as_json:
        print_json(document)
    else:
        _print(document)
    if losses:
        raise Failure(f"{format_count(sum(loss.records for loss in losses), 'record')} lost between tiers")


def _print(document: dict[str, Any]) -> None:
    names = ("client", "gateway", "store", "tables")
    columns = [Column("topic", is_text=True), *map(Column, names), Column("to come")]
    rows = []
    for topic, counts in document["topics"].items():
        rows.append((topic, *(counts["records"].get(name) for name in names), counts["pending"]))
        if counts["not_compared"]:
            print_note(f"Topic {topic} was not compared: {counts['not_compared']}.")
    print_table(columns, rows)
    for loss in document["losses"][:LOSSES_SHOWN]:
        click.echo(f"lost: {loss['topic']} {loss['from']}: {loss['records']:,} did not reach the tier {loss['tier']}")
    if len(document["losses"]) > LOSSES_SHOWN:
        print_note(f"{len(document['losses']) - LOSSES_SHOWN} more ten minutes have losses; --json has all.")


def _read_clients(files: tuple[Path, ...]) -> dict[str, Counter[int]]:
    """Returns the sum of the counts in all files, by topic and period. Raises Failure."""
    clients: dict[str, Counter[int]] = {}
    for path in files:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                fields = orjson.loads(line)
                topic, from_ms, records = fields["topic"], fields["from_ms"], fields["records"]
            except (orjson.JSONDecodeError, KeyError, TypeError):
                topic, from_ms, records = None, None, None
            if not isinstance(topic, str) or type(from_ms) is not int or type(records) is not int:
                raise Failure(f'{path} line {number} is not {{"topic": …, "from_ms": …, "records": …}}')
            clients.setdefault(topic, Counter())[from_ms // PERIOD_MS] += records
    return clients


def _time(at_ms: int) -> str:
    return "without a time" if at_ms < 0 else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
