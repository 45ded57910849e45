"""`penstock ingest plan`, `resume` and `schedule` as a user calls them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from spark_ingest.commands.plan import plan_command, resume_command
from spark_ingest.commands.run import run_command
from tests.spark_ingest.commands.test_ingest import Lake, penstock
from tests.spark_ingest.jobs import head_of, run_job, table_rows
from tests.spark_ingest.killing_store import Killed, KillingStore
from tests.spark_ingest.objects import objects_of
from tests.spark_ingest.tiered import TieredLog, json_rows, row

ROOT = Path(__file__).parents[3]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def places(lake: Lake) -> list[object]:
    return ["--store", lake.store_path, "--output", lake.output_path]


def planned(lake: Lake, *more: object) -> dict[str, Any]:
    done = penstock("ingest", "plan", *places(lake), "--topics", ".*", "--json", *more)
    document: dict[str, Any] = json.loads(done.stdout)
    return {"exit_code": done.exit_code, **document}


def test_a_plan_shows_what_the_next_run_does_and_writes_nothing(lake: Lake) -> None:
    lake.log.add(1, json_rows(12, first=30))
    before = objects_of(lake.output)
    found = planned(lake)
    assert objects_of(lake.output) == before
    assert (found["exit_code"], found["plan"], found["pending"], found["offsets"]) == (0, 1, False, 42)
    topic = found["topics"]["flights"]
    assert "`id` BIGINT" in topic["columns"]
    assert topic["partitions"] == [
        {"partition": 0, "start": 0, "end": 30},
        {"partition": 1, "start": 0, "end": 12},
    ]
    assert run_job(lake.store, lake.output).rows == found["offsets"]
    assert planned(lake)["plan"] is None
    shown = penstock("ingest", "plan", *places(lake), "--topics", ".*")
    assert shown.stdout == "no new records: the next run adds 0 rows\n"


def test_a_plan_shows_a_topic_that_cannot_be_planned_beside_the_others(lake: Lake) -> None:
    run_job(lake.store, lake.output)
    TieredLog(lake.store, topic="rides").add(0, json_rows(3))
    lake.log.lose(0, 5)
    found = planned(lake)
    assert (found["exit_code"], found["offsets"], list(found["topics"])) == (1, 3, ["rides"])
    assert "5 records or more were not ingested" in found["failed"]["flights"]
    assert planned(lake, "--on-lost", "skip")["lost_records"] == 5
    shown = penstock("ingest", "plan", *places(lake), "--topics", ".*")
    assert shown.stdout.startswith("failed: ")
    assert shown.stdout.splitlines()[-1] == "rides partition 0: 3 offsets, 0 to 2"


def test_resume_finishes_the_plan_of_a_killed_run_and_takes_no_new_records(lake: Lake) -> None:
    with pytest.raises(Killed):
        run_job(lake.store, KillingStore(lake.output, 4, is_after=True))
    lake.log.add(0, json_rows(9, first=30))
    assert planned(lake)["pending"] is True
    done = penstock("ingest", "resume", "--output", lake.output_path, "--store", lake.store_path, "--engine", "local")
    assert done.exit_code == 0, done.stderr
    assert [one["id"] for one in table_rows(lake.output)] == list(range(30))
    again = penstock("ingest", "resume", *places(lake), "--engine", "local", "--json")
    assert json.loads(again.stdout)["rows"] == 0
    head = head_of(lake.output)
    assert head.number == 1
    assert planned(lake)["offsets"] == 9


def test_resume_of_a_job_file_that_repeats_runs_ends(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f'[job]\nstore = "{lake.store_path}"\noutput = "{lake.output_path}"\ntopics = ".*"\n')
    file.write_text(file.read_text() + 'engine = "local"\nevery_s = 60\nfollow = true\n')
    assert penstock("ingest", "resume", "--config", file).exit_code == 0
    assert json.loads(penstock("ingest", "plan", "--config", file, "--json").stdout)["offsets"] == 30


def test_a_topic_with_bad_records_fails_when_it_is_resumed(lake: Lake) -> None:
    lake.log.add(0, [row(b"bad")] * 11)
    with pytest.raises(Killed):
        run_job(lake.store, KillingStore(lake.output, 4, is_after=True))
    done = penstock("ingest", "resume", *places(lake), "--engine", "local")
    assert done.exit_code == 1
    assert "dead letters" in done.stderr.splitlines()[-1]
    more = ["--dead-letter-max-percent", "50"]
    assert penstock("ingest", "resume", *places(lake), "--engine", "local", *more).exit_code == 0


@pytest.mark.parametrize("command", [plan_command, resume_command])
def test_the_options_mean_what_they_mean_for_run(command: Any) -> None:
    assert all(one in run_command.params for one in command.params)


def scheduled(file: Path, *more: str) -> str:
    done = penstock("ingest", "schedule", file, *more)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "50% of it.toml"
    file.write_text('[job]\nname = "flights"\nstore = "s3://log"\noutput = "s3://lake"\ntopics = "a|b"\n')
    return file


def test_a_crontab_has_commands_that_exist_with_options_that_they_take(file: Path) -> None:
    from spark_ingest.commands.ingest import ingest

    lines = [one for one in scheduled(file, "--form", "cron", "--every", "15min").splitlines() if one[0] != "#"]
    assert lines[0].startswith("*/15 * * * * penstock flock -n ")
    names = []
    for line in lines:
        assert re.search(r"(?<!\\)%", line) is None  # cron makes a line feed of it
        command = shlex.split(line.replace("\\%", "%").split("penstock ingest ", 1)[1])
        found = ingest.get_command(None, command[0])  # type: ignore[arg-type]
        assert found is not None
        found.make_context(command[0], command[1:])
        names.append(command[0])
    assert names == ["run", "lag", "finalize", "compact", "clean", "verify"]


@pytest.mark.parametrize(("every", "when"), [("1h", "0 * * * *"), ("6h", "0 */6 * * *"), ("1d", "0 0 * * *")])
def test_cron_gets_intervals_that_divide_an_hour_or_a_day(file: Path, every: str, when: str) -> None:
    assert scheduled(file, "--form", "cron", "--every", every).splitlines()[1].startswith(f"{when} penstock ")


@pytest.mark.parametrize("every", ["7min", "90s", "5h", "2d"])
def test_cron_refuses_other_intervals(file: Path, every: str) -> None:
    done = penstock("ingest", "schedule", file, "--form", "cron", "--every", every)
    assert done.exit_code == 2
    assert "--form systemd" in done.stderr


def test_a_unit_of_systemd_and_a_dag_of_airflow_run_the_job_file(file: Path) -> None:
    unit = scheduled(file, "--form", "systemd", "--every", "7min")
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    words = shlex.split(command.replace("%%", "%"))
    assert words[1:4] == ["ingest", "run", "--config"]
    assert words[4] == str(file.resolve())
    assert words[5:] == ["--engine", "local", "--every", "420s", "--upkeep-every", "1d"]
    dag = scheduled(file, "--form", "airflow")
    compile(dag, "dag.py", "exec")
    assert repr(f"penstock ingest run --config {shlex.quote(str(file.resolve()))}") in dag


def test_relative_places_of_a_job_file_are_those_of_the_current_directory(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cron, systemd and Airflow start a command elsewhere: a run would make another lake there."""
    place = file.parent / "a $b 5%'s"
    place.mkdir()
    monkeypatch.chdir(place)
    for form in ("cron", "systemd", "airflow"):
        assert not re.search("cd |WorkingDirectory|cwd=", scheduled(file, "--form", form))
    file = file.rename(place / "job.toml")
    file.write_text(file.read_text().replace("s3://lake", "lake"))
    for line in scheduled(file).splitlines()[1:]:
        assert shlex.split(line.replace("\\%", "%"))[5:9] == ["penstock", "cd", str(place), "&&"]
    unit = scheduled(file, "--form", "systemd")
    assert f"\nWorkingDirectory={place}\n".replace("%", "%%") in unit
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert shlex.split(command.replace("%%", "%").replace("$$", "$"))[4] == str(file)
    dag = scheduled(file, "--form", "airflow")
    compile(dag, "dag.py", "exec")
    assert dag.count(f", cwd={str(place)!r}") == 2


def test_a_job_file_with_a_mistake_is_not_scheduled(file: Path) -> None:
    file.write_text("[job]\nstores = 1\n")
    done = penstock("ingest", "schedule", file)
    assert done.exit_code == 2
    assert "stores" in done.stderr


def test_the_scheduled_lag_and_status_leave_out_the_excluded_topics_of_the_job_file(lake: Lake) -> None:
    TieredLog(lake.store, topic="noise").add(0, json_rows(5))
    file = lake.store_path.parent / "job.toml"
    file.write_text(
        f'[job]\nstore = "{lake.store_path}"\noutput = "{lake.output_path}"\ntopics = ".*"\nexclude = "noise"\n'
    )
    assert penstock("ingest", "run", "--config", file, "--engine", "local").exit_code == 0
    [line] = [one for one in scheduled(file).splitlines() if " ingest lag " in one]
    command = shlex.split(line.split("penstock ingest ", 1)[1])
    assert penstock("ingest", *command).exit_code == 0, "an excluded topic raises no alarm"
    for name in ("lag", "status"):
        found = json.loads(penstock("ingest", name, "--config", file, "--json").stdout)
        assert "noise" not in json.dumps(found)
    assert "noise" in penstock("ingest", "lag", "--config", file, "--exclude", "flights").stdout


def test_one_damaged_manifest_hides_no_other_topic(lake: Lake) -> None:
    run_job(lake.store, lake.output)
    other = TieredLog(lake.store, topic="other")
    other.add(0, json_rows(5))
    [manifest] = [one.key for one in lake.store.list(other.prefix(0)) if "/manifest/0" in one.key][-1:]
    lake.store.put(manifest, b"{damaged")
    lake.log.add(0, json_rows(2, first=30))
    for name in ("status", "lag", "plan"):
        done = penstock("ingest", name, *places(lake), *(["--topics", ".*"] if name == "plan" else []), "--json")
        found = json.loads(done.stdout)
        assert done.exit_code == 1, name
        assert list(found["failed"]) == ["other"], name
        assert found.get("lag_records", found.get("offsets", 2)) == 2
