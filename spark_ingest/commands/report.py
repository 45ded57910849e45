"""`penstock ingest report`: one page of HTML with the figures of a job (docs/ingest-operate.md)."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import format_count, print_note
from spark_ingest.options import StoreUrl, job_option, output_option


@click.command()
@output_option
@job_option
@click.option("--store", type=StoreUrl(), help="Also show the records that are not ingested yet.")
@click.option("--commits", type=click.IntRange(1), help="Only the newest commits, this many; 1 is the last one.")
@click.option(
    "--to", "file", type=click.Path(path_type=Path), default="report.html", show_default=True, help="The file to write."
)
def report(output: str, job_name: str, store: str | None, commits: int | None, file: Path) -> None:
    """Write a page of HTML with plots of a job: freshness, completeness, file sizes, skew, type mismatches.

    The page loads nothing and runs nothing: send it, or open it from a file.

    \f
    Raises Failure.
    """
    from spark_ingest.inspection.completeness import job_completeness
    from spark_ingest.inspection.figures import figures_of
    from spark_ingest.inspection.report_page import report_page
    from spark_ingest.output.stores import open_output_store, open_source_store
    from spark_ingest.protocol.history import History
    from spark_ingest.protocol.status import lag

    opened = open_output_store(output, is_written=False)
    head = History(opened, job_name).head()
    if head is None:
        raise Failure(f"job {job_name} in {opened.url} has no commit", ExitCode.USAGE)
    todo = lag(open_source_store(store), opened, job_name, head.positions.__contains__, None) if store else None
    figures = figures_of(opened, job_name, commits, todo)
    assert figures is not None
    if store:
        complete = job_completeness(open_source_store(store), opened, job_name)
        figures.complete = {
            topic: counts for topic, counts in complete.items() if counts.accepted or counts.unreadable_counts
        }
    try:
        file.write_text(report_page(figures), encoding="utf-8")
    except OSError as error:
        raise Failure(f"--to {file} was not written: {error.strerror}") from error
    print_note(f"{file} has {format_count(figures.commits, 'commit')} of job {job_name}.")
