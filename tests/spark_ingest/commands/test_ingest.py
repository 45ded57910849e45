"""`penstock ingest` without Spark: its errors, outputs and checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from engine.tiering.store.store import ObjectStore, open_store
from penstock.cli.main import main
from tests.spark_ingest.jobs import listed_files, run_job
from tests.spark_ingest.killing_store import Killed, KillingStore
from tests.spark_ingest.tiered import TieredLog, json_rows


class Lake:
    """A store with a topic in it, and the output of a job, in directories with spaces in their names."""

    def __init__(self, directory: Path) -> None:
        self.store_path, self.output_path = directory / "a store", directory / "an output"
        self.store: ObjectStore = open_store(self.store_path.as_uri())
        self.output: ObjectStore = open_store(self.output_path.as_uri())
        self.log = TieredLog(self.store)
        self.log.add(0, json_rows(30))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def penstock(*arguments: object) -> Result:
    """Run the command as the shell does; return its output, and the exit code of penstock.cli.main."""
    import click

    @click.command()
    def all_commands() -> None:
        raise SystemExit(main([str(one) for one in arguments]))

    return CliRunner().invoke(all_commands)


def test_status_shows_positions_and_what_is_to_do(lake: Lake) -> None:
    run_job(lake.store, lake.output)
    lake.log.add(0, json_rows(5, first=30))
    shown = penstock("ingest", "status", "--store", lake.store_path, "--output", lake.output_path)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[-1].split() == ["flights", "0", "0", "30", "35", "5", "4"]
    ran = penstock("ingest", "status", "--store", lake.store_path, "--output", lake.output_path, "--json")
    assert json.loads(ran.stdout)["lag_records"] == 5


def test_status_reports_a_plan_that_is_not_committed(lake: Lake) -> None:
    with pytest.raises(Killed):
        run_job(lake.store, KillingStore(lake.output, 4, is_after=True))
    shown = penstock("ingest", "status", "--store", lake.store_path, "--output", lake.output_path)
    assert "Plan 1 is not committed" in shown.stderr


def test_verify_ends_with_1_when_something_is_wrong(lake: Lake) -> None:
    run_job(lake.store, lake.output)
    sound = penstock("ingest", "verify", "--output", lake.output_path, "--deep")
    assert (sound.exit_code, sound.stdout.splitlines()[-1]) == (0, "sound")
    lake.output.delete(listed_files(lake.output)[0])
    broken = penstock("ingest", "verify", "--output", lake.output_path)
    assert broken.exit_code == 1
    assert "is missing" in broken.stdout
    assert broken.stderr == "penstock: 1 problem in the output of job default\n"


def test_abandon_gives_up_a_plan_once(lake: Lake) -> None:
    with pytest.raises(Killed):
        run_job(lake.store, KillingStore(lake.output, 5, is_after=True))
    assert "Plan 1 is abandoned, 1 files removed" in penstock("ingest", "abandon", "--output", lake.output_path).stderr
    assert "no plan to abandon" in penstock("ingest", "abandon", "--output", lake.output_path).stderr
    assert run_job(lake.store, lake.output).rows == 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topics", "("], "'('"),
        (["--topics", "a", "--job", "../x"], "'../x'"),
        (["--topics", "a", "--store", "http://x"], "'http'"),
        (["--topics", "a", "--cluster", "other"], "no cluster 'other'"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(
    lake: Lake, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no Java: the option is named, not Java."""
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    where = ["--store", lake.store_path, "--output", lake.output_path]
    refused = penstock("ingest", "run", *where, *arguments)
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_missing_java_is_reported_in_one_line_before_anything_is_done(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    refused = penstock("ingest", "run", "--store", lake.store_path, "--output", lake.output_path, "--topics", ".*")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("penstock: Spark needs Java 17 ")
    assert len(refused.stderr.splitlines()) == 1
    assert not lake.output_path.exists()


def test_the_summary_in_the_list_of_commands_is_that_of_run() -> None:
    from spark_ingest.commands.ingest import RUN_SUMMARY
    from spark_ingest.commands.run import run_command

    assert (run_command.help or "").startswith(RUN_SUMMARY)


WITHOUT_SPARK = """
import sys
for name in ('pyspark', 'pyarrow', 'numpy', 'pandas', 'py4j'): sys.modules[name] = None
from penstock.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_the_list_of_commands_needs_no_spark(arguments: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, "ingest", *arguments], capture_output=True, text=True, check=False
    )
    text = ran.stdout + ran.stderr
    assert "Traceback" not in text
    assert all(f"\n  {name} " in text for name in ("run", "status", "verify", "abandon"))


WITHOUT_JAVA = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas"):
            raise AssertionError(name)

sys.meta_path.insert(0, Absent())
from penstock.cli.main import main
sys.exit(main())
"""


def test_the_local_engine_needs_neither_java_nor_pyspark_nor_pandas(lake: Lake) -> None:
    places = ["--store", str(lake.store_path), "--output", str(lake.output_path)]
    command = [sys.executable, "-c", WITHOUT_JAVA, "ingest", "run", "--topics", "flights", "--engine", "local", *places]
    environment = {**os.environ, "PATH": "", "JAVA_HOME": ""}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("30 rows in 1 file, ")
    assert len(listed_files(lake.output)) == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--engine", "local", "--master", "local[2]"], "--master is an option of --engine spark"),
        (["--workers", "2"], "--workers is an option of --engine local"),
    ],
)
def test_an_option_of_the_other_engine_is_rejected(lake: Lake, options: list[str], problem: str) -> None:
    places = ["--store", lake.store_path, "--output", lake.output_path]
    ran = penstock("ingest", "run", "--topics", "flights", *options, *places)
    assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1)
    assert problem in ran.stderr


def test_completion_needs_no_spark() -> None:
    asked = {"COMP_WORDS": "penstock ingest r", "COMP_CWORD": "2", "_PENSTOCK_COMPLETE": "bash_complete"}
    command = [sys.executable, "-c", WITHOUT_SPARK]
    ran = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("plain,run\nplain,resume\nplain,replay\nplain,report\nplain,retain\n", "")


def test_without_spark_it_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    """With a standalone node's libraries: neither PySpark nor PyArrow can be imported."""
    for arguments in (["run", "--topics", "x"], ["status"], ["verify"], ["abandon"], ["run", "--help"]):
        places = ["--store", str(tmp_path), "--output", str(tmp_path)] if arguments[0] in ("run", "status") else []
        places = places or ["--output", str(tmp_path)]
        ran = subprocess.run(
            [sys.executable, "-c", WITHOUT_SPARK, "ingest", *arguments, *places],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode == 0:
            continue  # this one needs no Spark
        assert ran.returncode == 2, ran.stderr
        assert ran.stderr.count("\n") == 1
        assert (
            "is not installed: pip install --find-links dist 'penstock-server[spark]'" in ran.stderr
            or "holds 0 clusters" in ran.stderr
        ), ran.stderr
