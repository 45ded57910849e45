"""`penstock ingest retain` removes old days of tables. Any step may be killed, and verify stays sound."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import ObjectStore, StoreUnavailable, open_store
from spark_ingest.errors import IngestRefused
from spark_ingest.output import names
from spark_ingest.output.retained import load_retained
from spark_ingest.plan import UnreadablePlan
from spark_ingest.protocol.history import History
from spark_ingest.tables.publish import publish
from spark_ingest.upkeep.clean import clean
from spark_ingest.upkeep.retain import Retired, retain
from tests.spark_ingest.jobs import assert_sound, invoke, listed_files, run_job, table_rows
from tests.spark_ingest.killing_store import Killed
from tests.spark_ingest.tables.test_publish import RememberedTables
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows, row
from tests.spark_ingest.upkeep.test_clean import Faulty

DAY_MS = 24 * 3_600_000
EVERY = re.compile(".*")


def filled(topics: tuple[str, ...] = ("flights",)) -> tuple[MemoryStore, MemoryStore]:
    """Return a store and the output of a run a day, of 2013-11-21 to 26, with a dead letter each."""
    source, output = MemoryStore(), MemoryStore()
    logs = [TieredLog(source, topic=topic) for topic in topics]
    for day in range(6):
        output.now_ms = START_MS + day * DAY_MS
        for log in logs:
            timestamp = START_MS + day * DAY_MS
            log.add(0, [row(b'{"id":%d}' % day, timestamp=timestamp), row(b"no JSON", timestamp=timestamp)])
        run_job(source, output, bad_percent_max=100)
    return source, output


def days(output: ObjectStore, topic: str = "flights") -> list[str]:
    return sorted({key.split("/")[2].removeprefix("dt=") for key in listed_files(output, topic)})


def retained(output: ObjectStore, keep_days: int = 2, topics: re.Pattern[str] = EVERY) -> Retired:
    return retain(output, "default", topics, keep_days)


def test_days_before_the_kept_ones_are_removed() -> None:
    _, output = filled(("flights", "rides"))
    assert retained(output, topics=re.compile("flights")).files == 6
    assert days(output) == ["2013-11-24", "2013-11-25", "2013-11-26"]
    assert len(days(output, "rides")) == 6
    assert {key.split("/")[2] for key in output.objects if key.startswith("dead_letters/flights/")} == {
        "dt=2013-11-24",
        "dt=2013-11-25",
        "dt=2013-11-26",
    }
    findings = assert_sound(output)
    assert (findings.retired, findings.leftovers) == (6, 0)
    assert retained(output, topics=re.compile("flights")).files == 0
    assert retained(output, 4).files == 2, "of the other topic; a cut never goes back"
    assert days(output) == ["2013-11-24", "2013-11-25", "2013-11-26"]
    assert len([*output.list(names.retained_prefix("default"))]) == 1


def test_rows_that_come_late_for_a_retired_day_stay_until_the_next_call() -> None:
    source, output = filled()
    retained(output)
    TieredLog(source, ends={0: 12}).add(0, json_rows(3))
    run_job(source, output)
    assert days(output)[0] == "2013-11-21"
    assert_sound(output)
    assert retained(output).files == 1
    assert days(output)[0] == "2013-11-24"
    assert_sound(output)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("error", [Killed("here"), StoreUnavailable("503")])
def test_whatever_change_it_ends_at_the_next_one_finishes(error: BaseException, is_after: bool) -> None:
    _, output = filled()
    retained(output, 4)
    objects = dict(output.objects)
    counting = Faulty(output, 0, None)
    retain(counting, "default", EVERY, 2)
    done = dict(output.objects)
    assert counting.changes == 1 + 4 + 1
    for at in range(1, counting.changes + 1):
        output.objects = dict(objects)
        with pytest.raises(type(error)):
            retain(Faulty(output, at, error, is_after=is_after), "default", EVERY, 2)
        assert_sound(output)
        retained(output)
        assert output.objects == done, at


def test_a_dry_run_changes_nothing() -> None:
    _, output = filled()
    before = dict(output.objects)
    assert retain(output, "default", EVERY, 2, is_dry=True).files == 6
    assert output.objects == before


def test_what_no_commit_names_stays_and_is_named() -> None:
    _, output = filled()
    foreign = listed_files(output)[0].replace("+1.parquet", "+2.parquet")
    output.objects[foreign] = b"what is this?"
    output.objects["tables/flights/dt=2013-11-21/notes.txt"] = b"mine"
    before = dict(output.objects)
    assert retained(output).left == [foreign]
    assert {key for key in before if key not in output.objects} == {
        key for key in before if load_retained(output, "default").covers(key) and key != foreign
    }


def test_a_state_of_a_newer_release_stops_it() -> None:
    _, output = filled()
    output.put(names.retained_key("default", 3), b'{"format":9}')
    before = dict(output.objects)
    with pytest.raises(UnreadablePlan):
        retained(output)
    assert output.objects == before


def test_files_that_tables_of_a_catalog_name_stay() -> None:
    _, output = filled()
    publish(History(output, "default"), RememberedTables())
    before = dict(output.objects)
    with pytest.raises(IngestRefused, match="Iceberg tables have the files of job default"):
        retained(output)
    assert output.objects == before


def test_archives_and_retired_files_agree() -> None:
    _, output = filled()
    rows = len(table_rows(output))
    retained(output)
    clean(output, "default", keep_commits=1, keep_ms=0, archive_commits=2)
    assert (assert_sound(output).retired, assert_sound(output).rows) == (6, rows)
    assert retain(MemoryStore(), "default", EVERY, 2).files == 0


def test_the_command_says_what_it_removed(tmp_path: Path) -> None:
    source, output = MemoryStore(), open_store((tmp_path / "lake").as_uri())
    TieredLog(source).add(0, json_rows(3))  # of 2013, and the file store's clock is of today
    run_job(source, output)
    given = ["retain", "--output", output.url, "--topics", ".*", "--keep-days", "30"]
    document = json.loads(invoke(*given, "--dry-run", "--json").stdout)
    assert (document["files_removed"], document["is_dry_run"], document["left"]) == (1, True, [])
    assert "1 files removed" in invoke(*given).output
    assert table_rows(output) == []
    checked_output = invoke("verify", "--deep", "--output", output.url)
    assert checked_output.exit_code == 0
    assert "retired: 1 file of these" in checked_output.output
