"""`make airflow-tests`: the DAGs of docs/ingest-operate.md and of `penstock ingest schedule` run in Airflow itself.

Airflow is installed into an environment of its own, which is kept in build/. The DAG that ingests a day again runs as
well. Prints what the table holds after each run; exits with 1 if that is wrong.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from engine.tiering.store.store import open_store
from tests.spark_ingest.jobs import table_rows
from tests.spark_ingest.tiered import TieredLog, json_rows

ROOT = Path(__file__).parents[2]
AIRFLOW = "apache-airflow==3.3.2"
DAY = "2013-11-21"  # of the records
ROWS = 20
INSTALL_S, RUN_S = 900, 600


def main() -> None:
    """Raises CalledProcessError if a command of Airflow, and so a task, fails."""
    environment = ROOT / "build" / "airflow"
    if not (environment / "bin" / "airflow").exists():
        click.echo(f"installing {AIRFLOW} into {environment.relative_to(ROOT)}: minutes, the first time", err=True)
        subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=INSTALL_S)
        pip = [environment / "bin" / "pip", "install", "-q", "--disable-pip-version-check", AIRFLOW]
        subprocess.run(pip, check=True, timeout=INSTALL_S)
    with tempfile.TemporaryDirectory(prefix="penstock-airflow-") as name:
        run_in(Path(name), environment / "bin" / "airflow")


def run_in(directory: Path, airflow: Path) -> None:
    """Runs all DAGs on the log of one topic."""
    log = TieredLog(open_store((directory / "log").as_uri()))
    log.add(0, json_rows(ROWS))
    job = directory / "job.toml"
    job.write_text('[job]\nstore = "log"\noutput = "lake"\ntopics = "flights"\nengine = "local"\n')
    penstock = Path(sys.executable).parent / "penstock"
    schedule = [penstock, "ingest", "schedule", job, "--form", "airflow"]
    printed = subprocess.run(schedule, check=True, cwd=directory, capture_output=True, text=True, timeout=60).stdout
    page = (ROOT / "docs" / "ingest-operate.md").read_text()
    of_page = dict(re.findall(r'```python\n(.*?\n    "([\w-]+)",.*?)```', page, re.DOTALL))
    dags = directory / "airflow" / "dags"
    dags.mkdir(parents=True)
    variables = {
        **os.environ,
        "PATH": f"{penstock.parent}:{os.environ['PATH']}",
        "AIRFLOW_HOME": str(directory / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    subprocess.run([airflow, "db", "migrate"], check=True, env=variables, capture_output=True, timeout=RUN_S)
    commits = []
    for name, text in (*((name, text) for text, name in of_page.items()), ("printed", printed)):
        [dag] = re.findall(r"DAG\(\s*[\"']([\w-]+)", text)
        file = dags / f"{name}.py"
        file.write_text(_here(text, directory))
        done = subprocess.run(
            [airflow, "dags", "test", dag, DAY],
            env=variables,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        file.unlink()
        if done.returncode or "DagRun failed" in done.stdout:
            raise click.ClickException(f"{name} failed:\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}")
        rows = table_rows(open_store((directory / "lake").as_uri()))
        commits.append(sorted({int(str(row["_ingest_commit"])) for row in rows}))
        click.echo(f"{name}: {len(rows)} rows, of commit {commits[-1]}")
        if len(rows) != ROWS:
            raise click.ClickException(f"{ROWS} rows are expected after {name}")
    if commits != [[1], [2], [2]]:
        raise click.ClickException(f"the second DAG ingests the day again, the others do not: {commits}")


def _here(text: str, directory: Path) -> str:
    """Returns a DAG for the places of this run, whose records are of 2013."""
    for place in ("log", "lake"):
        text = text.replace(f"s3://{place}", str(directory / place))
    return text.replace("datetime(2026,", "datetime(2013,").replace("--max-age 2h", "")


if __name__ == "__main__":
    main()
