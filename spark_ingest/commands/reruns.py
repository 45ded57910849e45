"""`penstock ingest backfill` and `replay`: ranges below the positions of a job (docs/ingest-operate.md)."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from engine.errors import EngineError
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import Column, print_json, print_note, print_table
from spark_ingest.commands.clock import now_ms
from spark_ingest.options import (
    Moment,
    Pattern,
    add_options,
    job_option,
    json_option,
    output_option,
    store_option,
    tables_option,
)
from spark_ingest.plan import BACKFILL, REPLAY

_range_options = add_options(
    store_option,
    output_option,
    job_option,
    click.option("--topics", required=True, type=Pattern(), help="Topics of the job, as a regular expression."),
    click.option("--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one."),
    click.option("--from", "start", type=click.IntRange(0), help="The first offset."),
    click.option("--to", "end", type=click.IntRange(0), help="The offset after the last one."),
    click.option("--from-time", "start_ms", type=Moment(), help="From the first record of this time or later."),
    click.option("--to-time", "end_ms", type=Moment(), help="Up to the first record of this time or later."),
    click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A job file for the settings of topics.  [default: those of their newest plans]",
    ),
    click.option("--workers", type=click.IntRange(1), help="Tasks that run at once.  [default: the cores]"),
    click.option("--execute", is_flag=True, help="Do it. Without it, only show the ranges."),
    json_option,
)


@click.command()
@_range_options
@tables_option("Members that the tables of this file cannot name stay in _extra, as in run --tables.")
def backfill(*, tables_file: Path | None, **options: Any) -> None:
    """Add records below the positions of a job that it has not ingested: skipped, lost and restored, or early ones.

    Offsets that a commit has are left out, so each record is in the table once, also after a kill or a second call.

    \f
    Raises Failure.
    """
    _ingest_again(BACKFILL, options, tables_file)


@click.command()
@_range_options
@click.option("--resume", is_flag=True, help="Only complete a replay that was killed.")
@tables_option("Also replaces the files in the tables of this file; needed if they have files of the job.")
def replay(*, resume: bool, tables_file: Path | None, **options: Any) -> None:
    """Replace rows and dead letters by those of the same records, ingested again with other settings.

    First the new rows are committed, then the earlier ones are dropped. In between the table has both, and verify
    reports it; after a kill, --resume completes it.

    \f
    Raises Failure.
    """
    from spark_ingest.execution.arrow_setup import set_up_arrow
    from spark_ingest.output.stores import open_output_store
    from spark_ingest.positions.replayed import drop_replayed
    from spark_ingest.tables.job_tables import JobTables
    from spark_ingest.upkeep.policy import GRACE_MS

    set_up_arrow()
    tables = JobTables(tables_file, options["output"], options["job_name"])
    if not resume:
        _ingest_again(REPLAY, options, tables_file, tables.publisher)
        if not options["execute"]:
            return
    target = open_output_store(options["output"], is_written=True)
    grace_ms = GRACE_MS if tables.publisher else 0
    done = drop_replayed(
        target, options["job_name"], new_id=secrets.token_hex, grace_ms=grace_ms, publish=tables.publisher
    )
    if not options["as_json"]:
        print_note(f"{sum(done.dropped.values()):,} earlier rows and dead letters are replaced.")


def _ingest_again(
    step: str, options: dict[str, Any], tables_file: Path | None, publish: Callable[[], None] | None = None
) -> None:
    from spark_ingest.choices import TopicChoice
    from spark_ingest.config.choosing import TopicChoices
    from spark_ingest.config.job_file import read_job_file
    from spark_ingest.config.job_topics import MISFIT_MAX_PERCENT
    from spark_ingest.execution.local import LocalExecutor
    from spark_ingest.output.stores import open_output_store, open_source_store
    from spark_ingest.plan import Recipe
    from spark_ingest.positions.again import Bounds, chosen_ranges, ingest_again, recipes_of, with_choices
    from spark_ingest.positions.ingested import ingested_by
    from spark_ingest.positions.reading import positions_at, positions_of
    from spark_ingest.positions.replayed import check_replayable
    from spark_ingest.protocol.failures import Limits
    from spark_ingest.protocol.history import History, cluster_of_job
    from spark_ingest.protocol.planner import Selection
    from spark_ingest.protocol.runner import Components
    from spark_ingest.report import Report
    from spark_ingest.source.discovery import discover
    from spark_ingest.tables.settings import name_rules

    topics: re.Pattern[str] = options["topics"]
    if (options["start"] is not None and options["start_ms"] is not None) or (
        options["end"] is not None and options["end_ms"] is not None
    ):
        raise Failure(
            "name a range by offsets or by times: one of --from, --from-time; one of --to, --to-time", ExitCode.USAGE
        )
    source = open_source_store(options["store"])
    target = open_output_store(options["output"], is_written=False)
    job: str = options["job_name"]
    history = History(target, job)
    head = history.head()
    if head is None:
        raise Failure(f"job {job} in {target.url} has no commit: run penstock ingest run first", ExitCode.USAGE)

    cluster, positions = cluster_of_job(source, target, job), head.positions
    if options["execute"]:
        target.probe()

    def is_wanted(topic: str) -> bool:
        return topic in positions and bool(topics.fullmatch(topic))

    partitions = discover(source, cluster, is_wanted)

    def bound(offset: int | None, at_ms: int | None) -> Any:
        if at_ms is not None:
            return positions_at(source, cluster, is_wanted, at_ms)[1]
        return None if offset is None else positions_of(partitions, [offset] * len(partitions))

    starts, ends = (bound(options[name], options[f"{name}_ms"]) for name in ("start", "end"))
    bounds = Bounds(starts, ends, frozenset(options["partitions"]))
    ranges = chosen_ranges(source, head, is_wanted, bounds, ingested_by(history.commits()), step)
    names = sorted({topic for topic, _ in ranges})
    if options["execute"] and ranges:
        if step == REPLAY:
            check_replayable(target, job, names, publish)
        default, file = TopicChoice(misfit_max_percent=MISFIT_MAX_PERCENT), options["config_file"]
        choices = TopicChoices(read_job_file(file), {}, {}) if file else lambda _: default
        selection = Selection(topics, choices=choices, names=name_rules(tables_file))
        if not file:
            recipes = recipes_of(history, head, names)
            if missing := sorted(set(names) - recipes.keys()):
                raise Failure(
                    f"no plan of {', '.join(missing)} is left: name the job file with --config", ExitCode.USAGE
                )
            selection = with_choices(selection, recipes)
        report = Report(lambda _: Recipe(), is_quiet=options["as_json"])
        executor = LocalExecutor(source, target, options["workers"] or len(os.sched_getaffinity(0)), report.progress)
        parts = Components(source, target, executor.execute, executor.parallelism, report, secrets.token_hex, now_ms)
        try:
            ingest_again(job, step, selection, bounds, Limits(0.1, {}, choices=selection.choices), parts)
        except EngineError as error:
            raise Failure(str(error)) from error
    rows = [(topic, span.partition, span.start, span.end) for (topic, _), some in ranges.items() for span in some]
    if options["as_json"]:
        keys = ("topic", "partition", "start", "end")
        head = history.head()
        document = {"job": job, "executed": options["execute"], "head": head.number if head else None}
        print_json({**document, "ranges": [dict(zip(keys, row, strict=True)) for row in rows]})
        return
    print_table([Column("topic", is_text=True), Column("partition"), Column("from"), Column("to")], rows)
    done = "ingested" if options["execute"] else "to ingest; nothing is changed without --execute"
    print_note(f"{sum(end - start for _, _, start, end in rows):,} offsets {done}.")
