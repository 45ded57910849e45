"""The job file of a job: `penstock ingest check`, and `--config`, which makes its settings the defaults of options."""

from __future__ import annotations

from pathlib import Path

import click

from spark_ingest.options import CommandT


def config_option(command: CommandT) -> CommandT:
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_read,
        help="The job file of the job: its store, output, name, topics and cluster. Options override it.",
    )(command)


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Check the settings of a job file, and print every mistake with its line.

    \f
    Raises IngestRefused.
    """
    from spark_ingest.config.job_file import read_job_file

    checked = read_job_file(file)
    sections = f"{len(checked.topics)} sections of topics" if len(checked.topics) != 1 else "1 section of topics"
    click.echo(f"{file} is correct: topics {checked.job['topics']!r}, {sections}")


def _read(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    from spark_ingest.config.job_file import read_job_file
    from spark_ingest.config.job_settings import parameters_of

    context.default_map = parameters_of(dict(read_job_file(path).job))
