"""The recipes of docs/ingest-operate.md run: each line of cron, the unit of systemd, the DAG of Airflow."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine.tiering.store.store import open_store
from spark_ingest.commands.ingest import ingest
from spark_ingest.protocol.verify import verify
from tests.spark_ingest.jobs import invoke, table_rows
from tests.spark_ingest.tiered import TieredLog, json_rows

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ingest-operate.md").read_text()
SECTION = PAGE.split("\n## Schedules\n")[1].split("\n## ")[0]
CRON, SYSTEMD, AIRFLOW, AIRFLOW_AGAIN = re.findall(r"```\w+\n(.*?)```", SECTION, re.DOTALL)


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Return what replaces the places of the recipes."""
    log = TieredLog(open_store((tmp_path / "log").as_uri()))
    log.add(0, json_rows(20))
    return {
        "s3://log": str(tmp_path / "log"),
        "s3://lake": str(tmp_path / "lake"),
        "/run/lock/": f"{tmp_path}/",
        "/var/lib/node_exporter/": f"{tmp_path}/",
        "--max-age 2h": "",  # the records of the test are of 2013
    }


def here(command: str, places: dict[str, str]) -> str:
    for place, ours in places.items():
        command = command.replace(place, ours)
    return command


def call(command: str, places: dict[str, str]) -> None:
    name, group, *arguments = shlex.split(here(command, places))
    assert (name, group) == ("penstock", "ingest")
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output


def test_each_line_of_cron_runs(places: dict[str, str], tmp_path: Path) -> None:
    lines = [re.fullmatch(r"(?:\S+ ){5}ingest (.*)", line) for line in CRON.splitlines()]
    commands = [line[1] for line in lines if line]
    assert len(commands) == len(lines) == 6
    first = here(commands[0], places).replace("penstock ", f"{shlex.quote(sys.executable)} -m penstock.cli.main ", 1)
    subprocess.run(["sh", "-c", first], check=True, cwd=ROOT, capture_output=True, timeout=60)
    assert "penstock_ingest_run_success" in (tmp_path / "flights.prom").read_text()
    for command in commands[1:]:
        call(command, places)
    findings, _ = verify(open_store((tmp_path / "lake").as_uri()), "default")
    assert (findings.rows, findings.problems) == (20, [])


def test_the_unit_of_systemd_has_a_command_that_starts(places: dict[str, str]) -> None:
    [command] = re.findall(r"^ExecStart=(.*)$", SYSTEMD, re.MULTILINE)
    arguments = shlex.split(here(command, places))[2:]
    run = ingest.get_command(None, arguments[0])  # type: ignore[arg-type]
    assert run is not None
    assert run.make_context("run", arguments[1:]).params["follow"] is True


def commands_of(dag: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the commands of a DAG. `make airflow-tests` runs the same in Airflow itself."""
    commands: list[str] = []

    class Operator:
        def __init__(self, *, task_id: str, bash_command: str, **_: Any) -> None:
            commands.append(bash_command)

        def __rshift__(self, other: Operator) -> Operator:
            return other

    class Dag:
        def __init__(self, *_: Any, **__: Any) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    stand_ins = {
        "pendulum": {"datetime": lambda *_, **__: None},
        "airflow.sdk": {"DAG": Dag},
        "airflow.providers.standard.operators.bash": {"BashOperator": Operator},
    }
    for name, members in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    exec(compile(dag, "dag.py", "exec"), {})
    return commands


def test_the_tasks_of_airflow_run(places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = commands_of(AIRFLOW, monkeypatch)
    assert len(commands) == 2
    for command in commands:
        call(command, places)
    output = open_store((tmp_path / "lake").as_uri())
    assert [row["_ingest_commit"] for row in table_rows(output)] == [1] * 20
    [command] = commands_of(AIRFLOW_AGAIN, monkeypatch)
    call(command.replace("{{ ds }}", "2013-11-21").replace("{{ macros.ds_add(ds, 1) }}", "2013-11-22"), places)
    assert [row["_ingest_commit"] for row in table_rows(output)] == [2] * 20
