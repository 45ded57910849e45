"""`penstock ingest clean` and `retain`: few plans and commits, and no files of old days (docs/ingest-operate.md)."""

from __future__ import annotations

import re

import click

from penstock.cli.output import format_bytes, format_count, print_json, print_note
from spark_ingest.options import Pattern, job_option, json_option, output_option

_DAY_MS = 24 * 3_600_000


@click.command()
@output_option
@job_option
@click.option(
    "--keep-commits", type=click.IntRange(1), default=100, show_default=True, help="How many of the newest to keep."
)
@click.option(
    "--keep-days",
    type=click.IntRange(1),
    default=7,
    show_default=True,
    help="Keep commits that are younger than this, beside the newest: more than any pause of a run.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Change nothing; report what would be done.")
@json_option
def clean(output: str, job_name: str, keep_commits: int, keep_days: int, is_dry: bool, as_json: bool) -> None:
    """Move old plans and commits of a job into archives, 500 commits each. Data files stay.

    Runs list the history, so it should stay short: clean once a day. Verify, status and resuming work as before. After
    a kill, run it again. It removes nothing that it does not understand, and names it.
    """
    from spark_ingest.output.stores import open_output_store
    from spark_ingest.upkeep.clean import clean as clean_history

    opened = open_output_store(output, is_written=not is_dry)
    done = clean_history(opened, job_name, keep_commits=keep_commits, keep_ms=keep_days * _DAY_MS, is_dry=is_dry)
    if as_json:
        document = {"job": job_name, "is_dry_run": is_dry, "archives": done.archives}
        print_json({**document, "objects_removed": done.removed, "left": done.left})
        return
    count = sum(last - first + 1 for first, last in done.archives)
    would = " would be" if is_dry else ""
    print_note(
        f"{format_count(count, 'commit')}{would} archived, {format_count(done.removed, 'object')}{would} removed."
    )
    for key, why in sorted(done.left.items()):
        print_note(f"left: {key}: {why}")


@click.command()
@output_option
@job_option
@click.option("--topics", type=Pattern(), required=True, help="Topics, as a regular expression for whole names.")
@click.option("--keep-days", type=click.IntRange(1), required=True, help="Days to keep, back from the newest commit.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Change nothing; report what would be done.")
@json_option
def retain(output: str, job_name: str, topics: re.Pattern[str], keep_days: int, is_dry: bool, as_json: bool) -> None:
    """Remove the data files and dead letters of old days: those of `dt` before the kept ones.

    Rows that arrive late for such a day stay until the next call. After a kill, run it again.
    """
    from spark_ingest.output.stores import open_output_store
    from spark_ingest.upkeep.retain import retain as retire

    done = retire(open_output_store(output, is_written=not is_dry), job_name, topics, keep_days, is_dry=is_dry)
    if as_json:
        document = {"job": job_name, "is_dry_run": is_dry, "files_removed": done.files, "bytes": done.size_bytes}
        print_json({**document, "before": {topic: cut.day for topic, cut in done.cuts.items()}, "left": done.left})
        return
    would = "would be removed" if is_dry else "removed"
    print_note(f"{done.files:,} files {would}, {format_bytes(done.size_bytes)}.")
    for key in done.left:
        print_note(f"left: {key}: no commit names it")
