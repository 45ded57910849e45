"""`penstock ingest schedule`: a crontab, a unit of systemd or a DAG of Airflow for a job file. Installs nothing."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import click

from penstock.cli.failures import ExitCode, Failure
from spark_ingest.options import Seconds

CRON, SYSTEMD, AIRFLOW = "cron", "systemd", "airflow"
_HOUR_S, _DAY_S = 3600, 86_400
_PLACES = ("store", "output", "tables")

_UNIT = """\
# /etc/systemd/system/penstock-ingest-{name}.service
[Unit]
Description=Penstock ingestion, job {name}
Wants=network-online.target
After=network-online.target

[Service]
User=penstock
{directory}ExecStart={program} {run} --engine local --every {every_s}s --upkeep-every 1d
Restart=on-failure
RestartSec=30

[Install]
WantedBy=multi-user.target
"""
_DAG = """\
from datetime import timedelta

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    {dag!r},
    schedule=timedelta(seconds={every_s}),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
):
    run = BashOperator(task_id="run", bash_command={run!r}{cwd}, retries=3, retry_delay=timedelta(minutes=1))
    lag = BashOperator(task_id="lag", bash_command={lag!r}{cwd})
    run >> lag
"""


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--every", "every_s", type=Seconds(), default="10min", show_default=True, help="How often a run starts.")
@click.option(
    "--form",
    type=click.Choice((CRON, SYSTEMD, AIRFLOW)),
    default=CRON,
    show_default=True,
    help="The form of the schedule.",
)
@click.option(
    "--max-age", "age", metavar="DURATION", default="2h", show_default=True, help="Report a record that waits longer."
)
def schedule(file: Path, every_s: float, form: str, age: str) -> None:
    """Print the schedule of a job file: a crontab, a unit of systemd, or a DAG of Airflow. Installs nothing.

    If paths in the file are relative, its runs start in the current directory.

    \f
    Raises IngestRefused, Failure.
    """
    from spark_ingest.config.job_file import read_job_file

    Seconds().convert(age, None, click.get_current_context())
    job = {name: str(value) for name, value in read_job_file(file).job.items()}
    name = job.get("name", "default")
    run = f"ingest run --config {shlex.quote(str(file.resolve()))}"
    where = {option: f"--{option} {shlex.quote(job[option])}" for option in ("store", "output", "topics")}
    at = f"{where['output']} --job {name}"
    lag = f"ingest lag --config {shlex.quote(str(file.resolve()))} --max-age {age}"
    place = str(Path.cwd()) if any(_is_relative(job[option]) for option in _PLACES if option in job) else ""
    if form == SYSTEMD:
        program = shutil.which("penstock") or "penstock"
        directory = f"WorkingDirectory={place.replace('%', '%%')}\n" if place else ""
        escaped = run.replace("%", "%%").replace("$", "$$")
        unit = _UNIT.format(name=name, directory=directory, program=program, run=escaped, every_s=int(every_s))
        click.echo(unit, nl=False)
    elif form == AIRFLOW:
        texts = {"run": f"penstock {run}", "lag": f"penstock {lag}"}
        cwd = f", cwd={place!r}" if place else ""
        click.echo(_DAG.format(dag=f"penstock-ingest-{name}", every_s=int(every_s), cwd=cwd, **texts), nl=False)
    else:
        click.echo(f"# /etc/cron.d/penstock-ingest-{name}: each line runs as the user penstock")
        first = f"cd {shlex.quote(place)} && " if place else ""
        for when, command in (
            (_cron_times(int(every_s)), f"flock -n /tmp/penstock-ingest-{name}.lock penstock {run}"),
            ("5 * * * *", f"penstock {lag}"),
            ("20 * * * *", f"penstock ingest finalize {where['store']} {at} {where['topics']}"),
            ("30 2 * * *", f"penstock ingest compact {at} {where['topics']} --older-than 1h"),
            ("40 2 * * *", f"penstock ingest clean {at}"),
            ("50 2 * * *", f"penstock ingest verify {at} {where['store']}"),
        ):
            click.echo(
                f"{when} penstock {(first + command).replace('%', chr(92) + '%')}"
            )  # cron ends a command at a bare %


def _is_relative(path: str) -> bool:
    return "://" not in path and not path.startswith("/")


def _cron_times(every_s: int) -> str:
    """Returns the first five fields of a line of cron. Raises Failure for an interval that cron does not have."""
    minutes, hours = every_s // 60, every_s // _HOUR_S
    if every_s % 60 == 0 and minutes < 60 and 60 % minutes == 0:
        return f"*/{minutes} * * * *"
    if every_s % _HOUR_S == 0 and hours <= 24 and 24 % hours == 0:
        return "0 * * * *" if hours == 1 else "0 0 * * *" if hours == 24 else f"0 */{hours} * * *"
    raise Failure(
        "cron has no such interval: use minutes that divide an hour, hours that divide a day, or --form systemd",
        ExitCode.USAGE,
    )
