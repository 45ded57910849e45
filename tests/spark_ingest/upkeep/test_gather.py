"""Runs gather the small files of hours to which they add, as `small_files_max` of a topic says."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from engine.testing.memory_store import MemoryStore
from engine.tiering.store.store import ObjectStore, open_store
from spark_ingest.choices import TopicChoice
from spark_ingest.layout import JSONL, Layout
from spark_ingest.plan import Recipe
from spark_ingest.protocol.verify import verify
from spark_ingest.upkeep.gather import gather
from tests.spark_ingest.jobs import THIRDS, assert_sound, invoke, listed_files, new_id, run_job, table_rows
from tests.spark_ingest.killing_store import DyingStore, Killed
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows, row

HOUR_MS = 3_600_000


def run_and_gather(
    source: ObjectStore, output: ObjectStore, most: int | None, recipe: Recipe | None = None
) -> dict[str, int]:
    done = run_job(source, output, recipe=recipe)
    choice = TopicChoice(small_files_max=most)
    return gather(output, "default", done.commits, lambda _: choice, new_id=new_id)


def assert_table_is_log(output: MemoryStore, log: TieredLog) -> None:
    assert_sound(output)
    found = [(one["_partition"], one["_offset"], one["_key"]) for one in table_rows(output)]
    assert found == [(partition, offset, key) for partition, offset, key, _ in log.records()]


def late(hours: int) -> list[object]:
    return [row(b'{"id":%d}' % at, timestamp=START_MS + at * HOUR_MS) for at in range(hours)]


def test_late_rows_of_several_tasks_of_a_run_share_a_file_of_their_hour() -> None:
    log, output = TieredLog(MemoryStore()), MemoryStore()
    for partition in range(3):
        log.add(partition, [*json_rows(50), *late(4), *json_rows(50, first=50), *late(4)])
    done = run_and_gather(log.store, output, 1)
    assert done["files"] == 4 < done["files_replaced"]
    assert len({key.rpartition("/")[0] for key in listed_files(output)}) == len(listed_files(output)) == 4
    assert_table_is_log(output, log)


def test_an_hour_keeps_as_many_small_files_as_its_topic_allows_and_costs_one_listing() -> None:
    log, output = TieredLog(MemoryStore()), MemoryStore()
    files = []
    for at in range(7):
        log.add(0, json_rows(2, first=2 * at))
        run_job(log.store, output)
        before = DyingStore(output, 0, is_after=False)
        commits = verify(output, "default")[1][-1:]
        found = gather(before, "default", commits, lambda _: TopicChoice(small_files_max=3), new_id=lambda: "nonce")
        files.append((len(listed_files(output)), found["files_replaced"]))
        assert (before.operations == 1) == (found["files_replaced"] == 0)
    assert files == [(1, 0), (2, 0), (3, 0), (1, 4), (2, 0), (3, 0), (1, 4)]
    assert_table_is_log(output, log)


@pytest.mark.parametrize("layout", [Layout(), Layout(format=JSONL, codec="none")])
def test_without_the_setting_and_in_other_formats_nothing_is_gathered(layout: Layout) -> None:
    log, output = TieredLog(MemoryStore()), MemoryStore()
    most = 1 if layout.format == JSONL else None
    for at in range(3):
        log.add(0, json_rows(2, first=2 * at))
        assert run_and_gather(log.store, output, most, Recipe(layout=layout)) == {"files_replaced": 0, "files": 0}
    assert len(listed_files(output)) == 3


@pytest.mark.parametrize("first", THIRDS)
def test_a_kill_before_any_operation_neither_loses_nor_repeats_a_row(first: int) -> None:
    """What a killed run has left small is gathered by the next one that adds to the hour."""
    for kill_at in count(first, 3):
        log, output = TieredLog(MemoryStore()), MemoryStore()
        log.add(0, [*json_rows(5), *late(2)])
        run_and_gather(log.store, output, 1)
        log.add(1, late(3))
        log.add(0, late(3))
        try:
            run_and_gather(log.store, DyingStore(output, kill_at, is_after=False), 1)
            break
        except Killed:
            log.add(0, late(3))
            run_and_gather(log.store, output, 1)
        assert_table_is_log(output, log)
        assert len(listed_files(output)) == 3
    assert kill_at > 20


def test_the_setting_of_a_job_file_reaches_a_run(tmp_path: Path) -> None:
    log = TieredLog(open_store(f"file://{tmp_path}/store"))
    config = tmp_path / "job.toml"
    config.write_text(
        f'[job]\nstore = "{tmp_path}/store"\noutput = "{tmp_path}/lake"\ntopics = ".*"\nengine = "local"\n'
        "[topics.flights]\nsmall_files_max = 2\n"
    )
    gathered = []
    for at in range(3):
        log.add(0, json_rows(2, first=2 * at))
        done = invoke("run", "--config", str(config), "--json", catch_exceptions=False)
        assert done.exit_code == 0
        gathered.append(json.loads(done.stdout)["gathered"]["files_replaced"])
    assert gathered == [0, 0, 3]
    assert len(list((tmp_path / "lake" / "tables").rglob("*.parquet"))) == 1
    shown = invoke("run", "--config", str(config), catch_exceptions=False)
    assert "0 rows" in shown.output
    config.write_text(config.read_text() + 'format = "csv"\n')
    refused = invoke("check", str(config))
    assert "small_files_max has no effect on format csv; remove it" in refused.output
