"""`--config` of commands that show a job: the places and the topics of its job file, as defaults of their options."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click

from penstock.cli.failures import ExitCode, Failure
from spark_ingest.options import CommandT, Pattern


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


def exclude_option(command: CommandT) -> CommandT:
    return click.option("--exclude", type=Pattern(), help="Topics to leave out.")(command)


def is_selected(topics: re.Pattern[str], exclude: re.Pattern[str] | None) -> Callable[[str], bool]:
    """Returns the choice of topics that a run makes with the same options."""
    return lambda topic: bool(topics.fullmatch(topic)) and not (exclude and exclude.fullmatch(topic))


def raise_failed(failed: dict[str, str]) -> None:
    """Raises Failure if topics could not be read; the others are shown by then."""
    if failed:
        raise Failure("; ".join(f"{topic}: {why}" for topic, why in failed.items()), ExitCode.FAILED)


def _read(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    from spark_ingest.config.job_file import read_job_file
    from spark_ingest.config.job_settings import parameters_of

    options = {one.name for one in context.command.params}
    found = parameters_of(dict(read_job_file(path).job))
    context.default_map = {name: value for name, value in found.items() if name in options}
