"""`penstock ingest offsets`: shows, finds and sets positions of a job (docs/ingest-operate.md)."""

from __future__ import annotations

import re
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import Column, print_json, print_note, print_table
from spark_ingest.commands.clock import now_ms
from spark_ingest.options import (
    Moment,
    Pattern,
    cluster_option,
    job_option,
    json_option,
    output_option,
    store_option,
    topic_filter,
)

if TYPE_CHECKING:
    from engine.tiering.store.store import ObjectStore
    from spark_ingest.plan import Positions
    from spark_ingest.positions.moving import Change
    from spark_ingest.protocol.runner import Components
    from spark_ingest.source.discovery import TieredPartition

_topics_option = click.option("--topics", type=Pattern(), default=".*", show_default=True, help="Which topics.")


@click.group()
def offsets() -> None:
    """Show, find and set the positions of a job."""


@offsets.command()
@output_option
@job_option
@_topics_option
@json_option
def get(output: str, job_name: str, topics: re.Pattern[str], as_json: bool) -> None:
    """Show the committed position of each partition: all offsets below it are ingested, or recorded as lost."""
    from spark_ingest.output.stores import open_output_store
    from spark_ingest.positions.reading import committed_positions, positions_document

    opened = open_output_store(output, is_written=False)
    head, positions = committed_positions(opened, job_name, topic_filter(topics))
    if as_json:
        document = {"job": job_name, "cluster": head.cluster, "head": head.number}
        print_json({**document, "topics": positions_document(positions)})
        return
    _print_positions(positions)


@offsets.command("at-time")
@store_option
@click.option("--time", "at_ms", required=True, type=Moment(), help="ISO 8601, or milliseconds since 1970.")
@_topics_option
@cluster_option
@json_option
def at_time(store: str, at_ms: int, topics: re.Pattern[str], cluster: str | None, as_json: bool) -> None:
    """Find the first offset of each partition whose record has this timestamp or a later one.

    The end of the stored records if there is none. Timestamps are those of records.
    """
    from spark_ingest.output.stores import open_source_store
    from spark_ingest.positions.reading import positions_at, positions_document
    from spark_ingest.source.discovery import resolve_cluster

    source = open_source_store(store)
    cluster = resolve_cluster(source, cluster)
    _, positions = positions_at(source, cluster, topic_filter(topics), at_ms)
    if as_json:
        print_json({"cluster": cluster, "time_ms": at_ms, "topics": positions_document(positions)})
        return
    _print_positions(positions)


@offsets.command("set")
@store_option
@output_option
@job_option
@_topics_option
@cluster_option
@click.option(
    "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one; may be repeated."
)
@click.option("--to", "to", metavar="earliest|latest|OFFSET", help="The new position.")
@click.option("--to-time", "at_ms", type=Moment(), help="The position of a time, as at-time finds it.")
@click.option(
    "--positions",
    "positions_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The JSON of get or at-time; - is standard input.",
)
@click.option("--repeat", "may_repeat", is_flag=True, help="Allow that ingested records come a second time.")
@click.option("--execute", is_flag=True, help="Set the positions. Without it, only show what would change.")
@json_option
def set_(
    store: str,
    output: str,
    job_name: str,
    topics: re.Pattern[str],
    cluster: str | None,
    partitions: tuple[int, ...],
    to: str | None,
    at_ms: int | None,
    positions_file: Path | None,
    may_repeat: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Set the positions of a job. The next run starts there. Without --execute, show what would change.

    Records that are passed over are counted and named in status and verify. Records that are ingested and would come
    a second time are refused without --repeat, and then named in verify.

    \f
    Raises Failure.
    """
    from spark_ingest.output.stores import open_output_store, open_source_store
    from spark_ingest.positions.moving import check_no_repetition
    from spark_ingest.positions.reading import positions_at, positions_of
    from spark_ingest.positions.steps import dry_changes, set_positions
    from spark_ingest.protocol.history import History, cluster_of_job
    from spark_ingest.protocol.planner import Selection
    from spark_ingest.source.discovery import discover

    if sum(choice is not None for choice in (to, at_ms, positions_file)) != 1:
        raise Failure("name one of --to, --to-time and --positions", ExitCode.USAGE)
    source, target = open_source_store(store), open_output_store(output, is_written=False)
    cluster = cluster_of_job(source, target, job_name, cluster)
    if execute:
        target.probe()

    is_wanted = topic_filter(topics)
    if at_ms is not None:
        partitions_there, positions = positions_at(source, cluster, is_wanted, at_ms)
    else:
        partitions_there = discover(source, cluster, is_wanted)
        positions = (
            _positions_in(positions_file)
            if positions_file
            else positions_of(partitions_there, [_end(partition, to) for partition in partitions_there])
        )
    positions = _chosen(positions, topics, partitions)
    if not positions:
        raise Failure(f"no partition of {topics.pattern!r} in {source.url} is chosen", ExitCode.USAGE)
    changes = dry_changes(target, job_name, partitions_there, positions)
    if execute:
        if not may_repeat:
            check_no_repetition(changes)
        selection = Selection(topics, cluster=cluster)
        set_positions(
            job_name, selection, partitions_there, positions, _step_components(source, target), may_repeat=may_repeat
        )
    if as_json:
        head = History(target, job_name).head()
        document = {"job": job_name, "executed": execute, "head": head.number if head else None}
        print_json({**document, "changes": [_row(change) for change in changes]})
        return
    _print_changes(changes, execute=execute)


@offsets.command()
@store_option
@output_option
@job_option
@click.option("--topics", type=Pattern(), required=True, help="Which topics.")
@click.option("--execute", is_flag=True, help="Drop them. Without it, only show what would be dropped.")
@json_option
def drop(store: str, output: str, job_name: str, topics: re.Pattern[str], execute: bool, as_json: bool) -> None:
    """Drop topics from a job that the store does not have, nor a marker of their deletion.

    A run refuses these, because a store without them may be the wrong one. Their records that
    were not ingested count as lost, with an unknown number. A dropped topic that comes back goes on where it was.
    """
    from spark_ingest.output.stores import open_output_store, open_source_store
    from spark_ingest.positions.moving import missing_topics
    from spark_ingest.positions.reading import committed_positions
    from spark_ingest.positions.steps import drop_topics
    from spark_ingest.protocol.history import cluster_of_job
    from spark_ingest.protocol.planner import Selection

    source, target = open_source_store(store), open_output_store(output, is_written=False)
    head, _ = committed_positions(target, job_name, lambda _: True)
    cluster = cluster_of_job(source, target, job_name)
    selection = Selection(topics, cluster=cluster)
    lost = missing_topics(source, cluster, head, selection.wants)
    if execute and lost:
        target.probe()
        drop_topics(job_name, selection, _step_components(source, target))
    names = sorted({loss.topic for loss in lost})
    if as_json:
        print_json({"job": job_name, "executed": execute, "dropped": names})
    elif not names:
        print_note("The store has every topic of the job that matches, or the marker of its deletion.")
    else:
        print_note(f"{'Dropped' if execute else 'Nothing is changed; --execute drops'}: {', '.join(names)}")


def _step_components(source: ObjectStore, output: ObjectStore) -> Components:
    """Returns the components of a step that prints nothing."""
    from spark_ingest.plan import Recipe
    from spark_ingest.positions.steps import components_of
    from spark_ingest.report import Report

    report = Report(lambda _: Recipe(), is_quiet=True)
    return components_of(source, output, report, secrets.token_hex, now_ms)


def _end(partition: TieredPartition, to: str | None) -> int:
    if to in ("earliest", "latest"):
        return partition.log_start if to == "earliest" else partition.tiered_end
    if to is None or not re.fullmatch(r"\d{1,18}", to):
        raise Failure(f"--to {to!r} is not earliest, latest or an offset", ExitCode.USAGE)
    return int(to)


def _positions_in(path: Path) -> Positions:
    """Reads the JSON of `get` or `at-time`. Raises Failure, IngestRefused."""
    from spark_ingest.positions.reading import positions_in

    try:
        return positions_in(sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes())
    except OSError as error:
        raise Failure(f"--positions {path} cannot be read: {error.strerror}", ExitCode.USAGE) from error


def _chosen(positions: Positions, topics: re.Pattern[str], partitions: tuple[int, ...]) -> Positions:
    chosen: Positions = {}
    for topic, position in positions.items():
        ends = {number: end for number, end in position.ends.items() if not partitions or number in partitions}
        if topics.fullmatch(topic) and ends:
            chosen[topic] = msgspec.structs.replace(position, ends=ends)
    return chosen


def _row(change: Change) -> dict[str, Any]:
    names = ("gone", "passed", "repeated", "recovered")
    counts = {f"{name}_records": sum(span.end - span.start for span in getattr(change, name)) for name in names}
    partition = {"topic": change.topic, "partition": change.partition}
    return {**partition, "before": change.before, "after": change.after, **counts}


def _print_positions(positions: Positions) -> None:
    rows = [
        (topic, number, end) for topic, position in positions.items() for number, end in sorted(position.ends.items())
    ]
    print_table([Column("topic", is_text=True), Column("partition"), Column("position")], rows)


def _print_changes(changes: list[Change], *, execute: bool) -> None:
    if not changes:
        print_note("No position changes.")
        return
    columns = [Column("topic", is_text=True), Column("partition"), Column("before"), Column("after")]
    columns += [Column("skipped\nrecords"), Column("repeated\nrecords"), Column("recovered\nrecords")]
    rows = [_row(change) for change in changes]
    print_table(
        columns,
        [
            (
                *(row["topic"], row["partition"], row["before"], row["after"]),
                *(row["gone_records"] + row["passed_records"], row["repeated_records"], row["recovered_records"]),
            )
            for row in rows
        ],
    )
    print_note("The positions are set." if execute else "Nothing is changed; --execute sets the positions.")
