"""`penstock ingest clean`: keeps the plans and commits of a job few (docs/ingest.md, history)."""

from __future__ import annotations

import click

from penstock.cli.output import print_json, print_note
from spark_ingest.options import job_option, json_option, output_option

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
    from spark_ingest.protocol.clean import clean as clean_history

    opened = open_output_store(output, is_written=not is_dry)
    done = clean_history(opened, job_name, keep_commits=keep_commits, keep_ms=keep_days * _DAY_MS, is_dry=is_dry)
    if as_json:
        document = {"job": job_name, "is_dry_run": is_dry, "archives": done.archives}
        print_json({**document, "objects_removed": done.removed, "left": done.left})
        return
    count = sum(last - first + 1 for first, last in done.archives)
    would = "would be" if is_dry else "were"
    commits = f"{count:,} commits" if count else "No commits"
    print_note(f"{commits} {would} archived, {done.removed:,} plans and commits removed.")
    for key, why in sorted(done.left.items()):
        print_note(f"left: {key}: {why}")
