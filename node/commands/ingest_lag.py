"""`penstock ingest lag`: what the store has and a job has not ingested. Asks no node."""

from __future__ import annotations

import re
import time

import click

from node.commands.operate.job_config import config_option, exclude_option, is_selected, raise_failed
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import Column, format_bytes, print_json, print_table
from spark_ingest.options import Pattern, Seconds, job_option, json_option, output_option, store_option


@click.command()
@config_option
@store_option
@output_option
@job_option
@click.option("--topics", type=Pattern(), default=".*", show_default=True, help="Which topics to show.")
@exclude_option
@click.option("--cluster", help="The cluster's id, if the store has several.")
@click.option(
    "--max-age",
    "age_max_s",
    type=Seconds(),
    metavar="DURATION",
    help="Exit with 1 if a record that is not ingested is older than 30s, 10min or 2h.",
)
@json_option
def lag(
    store: str,
    output: str,
    job_name: str,
    topics: re.Pattern[str],
    exclude: re.Pattern[str] | None,
    cluster: str | None,
    age_max_s: float | None,
    as_json: bool,
) -> None:
    """Show the records of the store that a job has not ingested, by topic.

    Age is that of the oldest one, by its own timestamp and the clock of this machine. Unsealed segments are not in the
    store, and do not count.

    \f
    Raises Failure if a record is older than `--max-age`, or a topic cannot be read.
    """
    from spark_ingest.output.stores import open_output_store, open_source_store
    from spark_ingest.protocol.status import lag as lag_of

    source, target = open_source_store(store), open_output_store(output, is_written=False)
    document = lag_of(source, target, job_name, is_selected(topics, exclude), cluster)
    now_ms = time.time_ns() // 1_000_000
    ages = {topic: _age_s(one["oldest_ms"], now_ms) for topic, one in document["topics"].items()}
    for topic, one in document["topics"].items():
        one["age_seconds"] = ages[topic]
    if as_json:
        print_json(document)
    else:
        columns = [Column("topic", is_text=True), Column("records"), Column("stored"), Column("age\nseconds")]
        rows = [
            (topic, one["lag_records"], format_bytes(one["lag_bytes"]), ages[topic])
            for topic, one in document["topics"].items()
        ]
        print_table(columns, rows)
    raise_failed(document["failed"])
    late = [topic for topic, age in ages.items() if age_max_s is not None and age > age_max_s]
    if late:
        raise Failure(f"not ingested for longer than --max-age: {', '.join(late)}", ExitCode.FAILED)


def _age_s(oldest_ms: int | None, now_ms: int) -> int:
    return 0 if oldest_ms is None else max(0, now_ms - oldest_ms) // 1000
