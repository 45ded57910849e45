"""`penstock ingest check`: checks a job file without opening a store."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Check the settings of a job file, and print every mistake with its line.

    \f
    Raises IngestRefused.
    """
    from spark_ingest.config.job_file import read_job_file

    found = read_job_file(file)
    sections = f"{len(found.topics)} sections of topics" if len(found.topics) != 1 else "1 section of topics"
    click.echo(f"{file} is correct: topics {found.job['topics']!r}, {sections}")
