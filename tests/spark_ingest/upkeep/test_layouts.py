"""Steps after the commit follow the directories of each table: markers, compaction, retention, verification."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import open_store
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import CSV, ORC, POSITIONS, Field, Layout
from spark_ingest.output import names
from spark_ingest.plan import Recipe
from spark_ingest.protocol.runner import remove_files
from spark_ingest.protocol.verify import verify
from spark_ingest.upkeep.compact import Compaction, compact
from spark_ingest.upkeep.erase import erase
from spark_ingest.upkeep.finalize import finalize
from spark_ingest.upkeep.retain import retain
from tests.spark_ingest.jobs import assert_sound, dead_letters, invoke, listed_files, new_id, run_job
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows, row

EVERY = re.compile(".*")
DAY_S, DAY_MS = 24 * 3600, 24 * 3_600_000  # the first day is Thursday 2013-11-21, 05:00 UTC


def filled(layout: Layout) -> tuple[MemoryStore, MemoryStore]:
    """Return a store, and the output of two runs a day for 14 days."""
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    for day in range(14):
        output.now_ms = START_MS + day * DAY_MS
        for at in range(2):
            log.add(0, [row(b'{"id":%d,"name":"a/%d"}' % (day, at % 2), timestamp=START_MS + day * DAY_MS + at)])
            run_job(source, output, recipe=Recipe(layout=layout))
    return source, output


def directories(output: MemoryStore) -> list[str]:
    return sorted({key.rpartition("/")[0].removeprefix("tables/flights/") for key in data_files(output)})


def data_files(output: MemoryStore) -> list[str]:
    return [one for one in listed_files(output) if not names.is_marker(one)]


@pytest.mark.parametrize(
    ("layout", "marked", "files", "kept"),
    [
        (Layout(period="15min"), 14, 14, [f"dt=2013-{day}/hr=05/min=00" for day in ("12-02", "12-03", "12-04")]),
        (Layout(period="day", zone="Pacific/Honolulu"), 13, 14, ["dt=2013-12-02", "dt=2013-12-03"]),
        (Layout(period="week"), 2, 3, ["week=2013-12-02"]),
        (Layout(period="month", directories="%Y/%m"), 1, 2, ["2013/12"]),
        (Layout(period="none", fields=(Field("by_name", "name"),)), 0, 2, ["by_name=a%2F0", "by_name=a%2F1"]),
        (Layout(period=POSITIONS, positions=10), 0, 3, ["offset=0", "offset=10", "offset=20"]),
    ],
    ids=lambda one: one.fixed if isinstance(one, Layout) else "",
)
def test_a_table_of_any_layout_is_marked_compacted_and_retired(
    layout: Layout, marked: int, files: int, kept: list[str]
) -> None:
    source, output = filled(layout)
    until_ms = START_MS + 13 * DAY_MS + 3_600_000
    done = finalize(source, output, "default", EVERY, now_ms=until_ms, delay_ms=0, idle_ms=0)
    assert len(done.marked) == marked
    compact(output, "default", Compaction(EVERY), 0, new_id=new_id)
    assert len(data_files(output)) == files
    retain(output, "default", EVERY, keep_days=2)
    assert directories(output) == kept
    assert_sound(output)


def test_upkeep_works_with_names_of_a_template() -> None:
    """It reads the commit and the rewrite in them; a rewrite, a replay and an erasure keep the template."""
    name = "v1.{topic}-{partition}-{first_offset}+{commit}"
    layout = Layout(period="week", file_name=name)
    source, output = filled(layout)
    log = TieredLog(source, ends={0: 28})
    log.add(0, [row(b'{"id":99}', 14 * DAY_S, key=b"k")])
    with pytest.raises(IngestRefused, match="has files of the layout parquet by week named v1"):
        run_job(source, output, recipe=Recipe(layout=Layout(period="week")))
    run_job(source, output, recipe=Recipe(layout=layout))
    [erased] = erase(output, "default", b"k", EVERY, new_id=lambda: "n").done.rewrites
    compact(output, "default", Compaction(EVERY), 0, new_id=new_id)
    names_of = [one.rpartition("/")[2] for one in data_files(output)]
    assert len(names_of) == 3
    made = re.compile(r"v1\.flights-0-\d{20}\+\d+\+(\d+)\.\d+\.parquet")
    assert all((found := made.fullmatch(one)) and int(found[1]) > erased for one in names_of), names_of
    log.add(0, [row(b'{"id":100}', 14 * DAY_S)])
    run_job(source, output, recipe=Recipe(layout=layout))
    newest = remove_files(output, assert_sound(output).commits, ["tables/flights/"])
    assert [made.fullmatch(one) for one in newest] == [None], "a compacted file is of an earlier plan"
    [missing] = verify(output, "default")[0].problems
    assert missing == f"{newest[0]} is missing"


@pytest.mark.parametrize("year", [1, 1676, 2263, 9999])
def test_a_time_that_orc_cannot_hold_counts_as_none(year: int) -> None:
    source, output = MemoryStore(), MemoryStore()
    far = b'{"ts":"%04d-01-02T00:00:00Z"}' % year
    timestamps = [START_MS, 9_300_000_000_000 * 2]
    TieredLog(source).add(0, [row(far, timestamp=timestamps[0]), row(far, timestamp=timestamps[1]), row(b"{}")])
    ran = run_job(source, output, recipe=Recipe(event_time="ts", layout=Layout(format=ORC)), bad_percent_max=100)
    [result] = ran.commits[0].results
    assert (result.rows, result.fallbacks, result.reasons) == (2, 2, {"no_event_time": 1})
    assert [one["_value"] for one in dead_letters(output)] == [far]
    assert_sound(output)


@pytest.fixture
def two_tables(tmp_path: Path) -> str:
    """Return the directory of an output with a Parquet table, and one of CSV in directories without names."""
    store, output = open_store((tmp_path / "s").as_uri()), open_store((tmp_path / "o").as_uri())
    TieredLog(store, topic="first", topic_id="1" * 32).add(0, json_rows(5))
    TieredLog(store, topic="second", topic_id="2" * 32).add(0, json_rows(5))
    run_job(
        store, output, topics="first", recipe=Recipe(layout=Layout(format=CSV, period="month", directories="%Y/%m"))
    )
    run_job(store, output, topics="second")
    return str(tmp_path / "o")


def test_erase_does_not_say_that_no_row_has_a_key_of_tables_that_it_does_not_search(two_tables: str) -> None:
    """The first file has the key."""
    ran = invoke("erase", "--output", two_tables, "--key", "nobody")
    assert ran.exit_code == 1
    assert "No row of the searched files has this key." in ran.output
    assert "not searched, because only Parquet files are: tables/first/" in ran.output + str(ran.exception)
    ran = invoke("erase", "--output", two_tables, "--key", "nobody", "--topics", "second")
    assert (ran.exit_code, "No row has this key." in ran.output) == (0, True)


def test_ddl_goes_on_past_a_table_that_no_catalog_takes(two_tables: str) -> None:
    ran = invoke("ddl", "--output", two_tables)
    assert ran.exit_code == 1
    assert "left out: first has directories of the form" in ran.output
    assert "CREATE EXTERNAL TABLE IF NOT EXISTS `second`" in ran.output
