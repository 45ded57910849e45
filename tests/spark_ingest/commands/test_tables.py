"""`penstock ingest publish`, `status` and `verify` with Iceberg tables."""

from __future__ import annotations

import builtins
import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.spark_ingest.commands.test_ingest import penstock
from tests.spark_ingest.tables.lakes import Lake
from tests.spark_ingest.tiered import json_rows


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.ingest()
    settings = lake.settings
    (tmp_path / "tables.toml").write_text(
        f'[iceberg]\ncatalog = "{settings.catalog}"\nwarehouse = "{settings.warehouse}"\nnamespace = "events"\n'
    )
    return lake


def ingest(lake: Lake, command: str, *more: str) -> Result:
    tables = ("--tables", lake.directory / "tables.toml")
    return penstock("ingest", command, "--output", lake.directory / "an output", *tables, *more)


def test_publish_status_and_verify_name_the_table_its_snapshot_and_what_is_missing(lake: Lake) -> None:
    status = ("status", "--store", str(lake.directory / "a store"))
    before = ingest(lake, *status)
    assert before.exit_code == 0
    missing = "table events.flights is not there yet; not published: commit 1 with 30 rows"
    assert missing in before.stdout.splitlines()
    done = ingest(lake, "publish")
    snapshot = lake.table().current_snapshot().snapshot_id
    assert done.stdout == f"table events.flights has commit 1, snapshot {snapshot}, added commit 1 with 30 rows\n"
    lake.log.add(0, json_rows(5, first=50))
    lake.ingest()
    after = json.loads(ingest(lake, *status, "--json").stdout)["tables"]
    assert after == [
        {
            "topic": "flights",
            "table": "events.flights",
            "commit": 1,
            "snapshot": snapshot,
            "rewrite": 0,
            "not_published": [2],
            "not_published_rows": 5,
            "error": None,
        }
    ]
    sound = ingest(lake, "verify")
    assert sound.exit_code == 0
    assert f"snapshot {snapshot}; not published: commit 2 with 5 rows" in sound.stdout


def test_verify_ends_with_1_when_the_table_lists_other_files(lake: Lake) -> None:
    ingest(lake, "publish")
    with lake.table().transaction() as transaction:
        transaction.delete("_topic_partition = 1")
    broken = ingest(lake, "verify")
    assert broken.exit_code == 1
    [problem] = [line for line in broken.stdout.splitlines() if line.startswith("problem: ")]
    assert problem.startswith("problem: events.flights does not list tables/flights/dt=2013-11-21/")
    assert problem.endswith(".parquet of commit 1")


def test_a_catalog_that_is_away_ends_publish_with_1_and_one_line(lake: Lake) -> None:
    path = lake.directory / "tables.toml"
    path.write_text(path.read_text().replace("catalog.db", "absent/catalog.db"))
    failed = ingest(lake, "publish")
    assert failed.exit_code == 1
    [line] = failed.stderr.splitlines()
    assert line.startswith("penstock: catalog sqlite:///")
    assert "unable to open database file" in line
    assert "not published: catalog sqlite:///" in ingest(lake, "verify").stdout


def test_a_wrong_file_ends_with_2(lake: Lake) -> None:
    (lake.directory / "tables.toml").write_text("[hudi]\n")
    refused = ingest(lake, "publish")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


def test_without_pyiceberg_one_line_says_what_to_install(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *more: object) -> object:
        if name == "spark_ingest.tables.iceberg":
            raise ModuleNotFoundError("No module named 'pyiceberg'", name="pyiceberg")
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", missing)
    refused = ingest(lake, "publish")
    assert refused.exit_code == 2
    hint = "pip install --find-links dist 'penstock-server[iceberg]', or make setup in a clone"
    assert refused.stderr == f"penstock: --tables needs pyiceberg, which is not installed ({hint})\n"


def run(lake: Lake, *more: str) -> Result:
    source = str(lake.directory / "a store")
    return ingest(lake, "run", "--store", source, "--topics", "flights", "--engine", "local", "--workers", "1", *more)


def test_a_run_publishes_its_commits_and_earlier_ones(lake: Lake) -> None:
    lake.log.add(0, json_rows(5, first=50))
    done = run(lake, "--json")
    [table] = json.loads(done.stdout)["tables"]
    assert (table["added"], table["added_rows"], table["commit"]) == ([1, 2], 35, 2)
    lake.assert_table_is_log()
    again = run(lake)
    assert again.stdout.splitlines()[-1] == f"table events.flights has commit 2, snapshot {table['snapshot']}"


def test_a_run_commits_although_the_catalog_is_away_and_ends_with_1(lake: Lake) -> None:
    path = lake.directory / "tables.toml"
    path.write_text(path.read_text().replace("catalog.db", "absent/catalog.db"))
    lake.log.add(0, json_rows(5, first=50))
    failed = run(lake)
    assert failed.exit_code == 1
    assert "5 rows" in failed.stdout
    assert failed.stderr.splitlines()[-1].startswith("penstock: catalog sqlite:///")
    head = lake.history().head()
    assert head is not None
    assert head.number == 2


def test_a_run_into_a_table_of_another_job_does_nothing_and_ends_with_2(lake: Lake) -> None:
    ingest(lake, "publish")
    with lake.table().transaction() as transaction:
        transaction.set_properties({"penstock.job": "other"})
    lake.log.add(0, json_rows(5, first=50))
    refused = run(lake)
    assert refused.exit_code == 2
    assert "belongs to topic flights of job other" in refused.stderr
    assert len(list(lake.history().commits())) == 1


def test_a_run_that_widens_columns_is_refused_with_tables(lake: Lake) -> None:
    refused = run(lake, "--on-misfit", "widen")
    assert refused.exit_code == 2
    assert "--on-misfit widen makes a bigint column decimal" in refused.stderr
