"""`penstock ingest finalize`: marks hours of tables as complete (docs/ingest-operate.md, complete hours)."""

from __future__ import annotations

import re

import click

from penstock.cli.output import print_json, print_note
from spark_ingest.commands.clock import now_ms
from spark_ingest.options import Pattern, Seconds, job_option, json_option, output_option, store_option


@click.command()
@store_option
@output_option
@job_option
@click.option("--topics", type=Pattern(), default=".*", show_default=True, help="Which topics of the job to mark.")
@click.option(
    "--delay",
    "delay_s",
    type=Seconds(),
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="How long after the end of an hour records with later timestamps must be committed.",
)
@click.option(
    "--idle",
    "idle_s",
    type=Seconds(),
    default="3h",
    show_default=True,
    metavar="DURATION",
    help="An hour that ended this long ago does not wait for partitions without new records. More than segment_ms.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Change nothing; report which hours are complete.")
@json_option
def finalize(
    store: str,
    output: str,
    job_name: str,
    topics: re.Pattern[str],
    delay_s: float,
    idle_s: float,
    is_dry: bool,
    as_json: bool,
) -> None:
    """Create _SUCCESS in the directory of each hour that has all its records.

    Records that come later are still added to the hour; they are counted. After a kill, run it again.
    """
    from spark_ingest.output.stores import open_output_store, open_source_store
    from spark_ingest.upkeep.finalize import finalize as mark_hours

    done = mark_hours(
        open_source_store(store),
        open_output_store(output, is_written=not is_dry),
        job_name,
        topics,
        now_ms=now_ms(),
        delay_ms=int(delay_s * 1000),
        idle_ms=int(idle_s * 1000),
        is_dry=is_dry,
    )
    if as_json:
        document = {"job": job_name, "is_dry_run": is_dry, "marked": done.marked}
        print_json({**document, "watermarks_ms": done.watermarks, "late_rows": done.late})
        return
    would = "would be marked" if is_dry else "marked"
    print_note(f"{len(done.marked):,} hours {would} as complete, {done.complete:,} were before.")
    for directory, count in sorted(done.late.items()):
        print_note(f"late: {count:,} rows came to {directory} after it was marked")
