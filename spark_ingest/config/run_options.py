"""The options of `penstock ingest run` that repeat it in one process. Imports neither Spark nor PyArrow."""

from __future__ import annotations

from dataclasses import dataclass

import click

from spark_ingest.config.job_settings import SPARK
from spark_ingest.errors import IngestRefused
from spark_ingest.options import Seconds, add_options

FOLLOW_EVERY_S = 60.0  # freshness in minutes; a run without new records takes a few requests


@dataclass(frozen=True, slots=True)
class Repetition:
    """How often a process starts a run, and whether it prints a line for a run without new records."""

    every_s: float
    is_quiet: bool


repeating_options = add_options(  # of `run`
    click.option(
        "--every",
        "every_s",
        type=Seconds(),
        metavar="DURATION",
        help="Start a run every 30s, 10min or 1h in one process, until SIGTERM; needs --engine local. Prints one "
        "line of JSON for each run.",
    ),
    click.option(
        "--follow",
        is_flag=True,
        help="Keep going in one process until SIGTERM: look for new segments every minute, or as --every says. "
        "Prints a line only for a run with new records or a failure; needs --engine local.",
    ),
    click.option(
        "--upkeep-every",
        "upkeep_s",
        type=Seconds(),
        metavar="DURATION",
        help="With --every or --follow: after a run, this often, also compact hours that ended an hour ago, and "
        "clean the history.",
    ),
)


def repetition_of(every_s: float | None, upkeep_s: float | None, engine: str, *, follow: bool) -> Repetition | None:
    """Returns how runs repeat; None for a single run. Raises IngestRefused for options that do not fit together."""
    if every_s is None and not follow:
        if upkeep_s is not None:
            raise IngestRefused(
                "--upkeep-every needs --every or --follow", hint="use penstock ingest compact and clean"
            )
        return None
    if engine == SPARK:
        option = "--follow" if follow else "--every"
        raise IngestRefused(f"{option} needs --engine local", hint="run jobs on Spark by cron or a systemd timer")
    return Repetition(every_s or FOLLOW_EVERY_S, is_quiet=follow)
