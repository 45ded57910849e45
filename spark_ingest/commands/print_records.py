"""`penstock ingest print`: records of the store as lines of JSON, decoded as a job does (docs/ingest-operate.md)."""

from __future__ import annotations

import re
from pathlib import Path

import click

from penstock.cli.failures import ExitCode, Failure
from spark_ingest.options import Moment, Pattern, PayloadName, cluster_option, store_option, topic_filter


@click.command("print")
@store_option
@click.option("--topics", required=True, type=Pattern(), help="Topics, as a regular expression for the whole name.")
@cluster_option
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A job file: its decoders and transformers apply.",
)
@click.option("--payload", type=PayloadName(), help="The decoder of topics without --config.  [default: json]")
@click.option(
    "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one; may be repeated."
)
@click.option("--from", "start", type=click.IntRange(0), default=0, help="The first offset.")
@click.option("--to", "end", type=click.IntRange(0), help="The offset after the last one.")
@click.option("--from-time", "start_ms", type=Moment(), help="Only records with this timestamp or a later one.")
@click.option("--to-time", "end_ms", type=Moment(), help="Only records with an earlier timestamp.")
@click.option("--limit", type=click.IntRange(1), help="The number of records.")
def print_records(
    store: str,
    topics: re.Pattern[str],
    cluster: str | None,
    config_file: Path | None,
    payload: str | None,
    partitions: tuple[int, ...],
    start: int,
    end: int | None,
    start_ms: int | None,
    end_ms: int | None,
    limit: int | None,
) -> None:
    """Print records of the store, one line of JSON each, with the decoder of the job. Asks no node.

    Only sealed segments are in the store. A value that cannot be decoded has the reason in `problem`.

    \f
    Raises Failure.
    """
    from spark_ingest.config.choosing import TopicChoices
    from spark_ingest.config.job_file import JobFile, read_job_file
    from spark_ingest.inspection.record_lines import Bounds, record_lines
    from spark_ingest.output.stores import open_source_store
    from spark_ingest.source.discovery import resolve_cluster, topics_of

    if config_file and payload:
        raise Failure("--payload is for topics without --config", ExitCode.USAGE)
    file = read_job_file(config_file) if config_file else JobFile({}, {}, {})
    choices = TopicChoices(file, {"payload": payload} if payload else {}, {})
    choices.check()
    source = open_source_store(store)
    cluster = resolve_cluster(source, cluster)

    is_wanted = topic_filter(topics)
    if not topics_of(source, cluster, is_wanted):
        raise Failure(f"no topic in {source.url} matches {topics.pattern!r}", ExitCode.USAGE)
    bounds = Bounds(frozenset(partitions), start, end, start_ms, end_ms, limit)
    for line in record_lines(source, cluster, is_wanted, bounds, lambda topic: choices(topic).recipe):
        click.echo(line)
