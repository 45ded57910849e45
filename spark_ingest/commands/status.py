"""How far a job is: `penstock ingest status`, and `lag`, which is one number for each topic. Neither asks a node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import Column, format_bytes, print_facts, print_json, print_note, print_table
from spark_ingest.commands.clock import now_ms
from spark_ingest.commands.findings import completeness_of, missing_of, print_completeness, print_held, print_ranges
from spark_ingest.commands.job_file import config_option
from spark_ingest.options import (
    Pattern,
    Seconds,
    cluster_option,
    job_option,
    json_option,
    output_option,
    store_option,
    tables_option,
    topic_filter,
)

_exclude_option = click.option("--exclude", type=Pattern(), help="Topics to leave out.")


@click.command()
@config_option
@store_option
@output_option
@job_option
@click.option("--topics", type=Pattern(), default=".*", show_default=True, help="Which topics to show.")
@_exclude_option
@cluster_option
@click.option(
    "--audit",
    "is_audited",
    is_flag=True,
    help="Also compare the records of each topic with those that the nodes accepted, by ten minutes.",
)
@tables_option("Also show the tables of this file, and the commits that they do not have yet.")
@json_option
def status(
    store: str,
    output: str,
    job_name: str,
    topics: re.Pattern[str],
    exclude: re.Pattern[str] | None,
    cluster: str | None,
    is_audited: bool,
    tables_file: Path | None,
    as_json: bool,
) -> None:
    """Show how far a job is, and how much of the store it has not read yet.

    Ends with 5 if records are gone that were never ingested, until a run with --on-lost skip has recorded them; with 1
    if a topic cannot be read.

    \f
    Raises Failure.
    """
    from spark_ingest.output.stores import open_output_store, open_source_store
    from spark_ingest.protocol.status import status as status_of
    from spark_ingest.tables.job_tables import JobTables

    is_wanted = topic_filter(topics, exclude)
    source, opened = open_source_store(store), open_output_store(output, is_written=False)
    document = status_of(source, opened, job_name, is_wanted, cluster)
    if is_audited:
        document["completeness"] = completeness_of(source, opened, job_name, is_wanted)
    document["tables"] = JobTables(tables_file, output, job_name).status()
    print_json(document) if as_json else _print_status(document)
    _raise_failed(document["failed"])
    if document["lost"]:
        click.get_current_context().exit(ExitCode.LOST)


@click.command()
@config_option
@store_option
@output_option
@job_option
@click.option("--topics", type=Pattern(), default=".*", show_default=True, help="Which topics to show.")
@_exclude_option
@cluster_option
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
    document = lag_of(source, target, job_name, topic_filter(topics, exclude), cluster)
    at_ms = now_ms()
    ages = {topic: _age_s(lag_of_topic["oldest_ms"], at_ms) for topic, lag_of_topic in document["topics"].items()}
    for topic, lag_of_topic in document["topics"].items():
        lag_of_topic["age_seconds"] = ages[topic]
    if as_json:
        print_json(document)
    else:
        columns = [Column("topic", is_text=True), Column("records"), Column("stored"), Column("age\nseconds")]
        rows = [
            (topic, lag_of_topic["lag_records"], format_bytes(lag_of_topic["lag_bytes"]), ages[topic])
            for topic, lag_of_topic in document["topics"].items()
        ]
        print_table(columns, rows)
    _raise_failed(document["failed"])
    late = [topic for topic, age in ages.items() if age_max_s is not None and age > age_max_s]
    if late:
        raise Failure(f"not ingested for longer than --max-age: {', '.join(late)}", ExitCode.FAILED)


def _print_status(document: dict[str, Any]) -> None:
    from spark_ingest.tables.job_tables import print_tables

    pending = document["pending_plan"]
    print_facts(
        [
            ("job", document["job"]),
            ("cluster", document["cluster"]),
            ("commit", document["head"]),
            ("to do", f"{document['lag_records']:,} records, {format_bytes(document['lag_bytes'])}"),
        ]
    )
    print_held(document["held"])
    for topic, counts in sorted(document["misfits"].items()):
        text = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
        click.echo(f"values of another type than their column, in _extra: {topic}: {text}")
    print_ranges("lost", document["lost"])
    for topic, count in sorted(document["unseen_records"].items()):
        click.echo(f"{topic}: {count:,} offsets were gone before this job first read their partition")
    if document["skipped_records"]:
        click.echo(f"{document['skipped_records']:,} lost records were skipped by earlier runs")
    print_ranges("skipped", document["skipped"])
    if pending is not None:
        print_note(f"Plan {pending} is not committed: a run is under way, or the next one resumes it.")
    if document["incomplete_replay"] is not None:
        print_note("A replay is not complete: penstock ingest replay --resume drops the earlier rows.")
    complete = document.get("completeness", {})
    print_completeness(complete)
    for line in missing_of(complete):
        click.echo(f"missing: {line}")
    print_tables(document["tables"])
    click.echo()
    print_table(
        [
            Column("topic", is_text=True),
            Column("partition"),
            Column("log\nstart"),
            Column("committed\nend"),
            Column("tiered\nend"),
            Column("lag\nrecords"),
            Column("lag\nseconds"),
        ],
        [
            (
                *(
                    partition["topic"],
                    partition["partition"],
                    partition["log_start"],
                    partition["committed_end"],
                    partition["tiered_end"],
                ),
                *(partition["lag_records"], round(partition["lag_ms"] / 1000)),
            )
            for partition in document["partitions"]
        ],
    )


def _raise_failed(failed: dict[str, str]) -> None:
    """Raises Failure if topics could not be read; the others are shown by then."""
    if failed:
        raise Failure("; ".join(f"{topic}: {why}" for topic, why in failed.items()), ExitCode.FAILED)


def _age_s(oldest_ms: int | None, now_ms: int) -> int:
    return 0 if oldest_ms is None else max(0, now_ms - oldest_ms) // 1000
