"""`penstock ingest compact` makes large files of small ones. Any step may be killed, and no row is lost or repeated."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.testing.memory_store import MemoryStore
from engine.testing.store_proxy import StoreProxy
from engine.tiering.store.store import ObjectStore, StoreUnavailable, open_store
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import CODECS, DAY, JSONL, PARQUET, Layout
from spark_ingest.output import names
from spark_ingest.output.rewrites import Rewrites
from spark_ingest.plan import Recipe
from spark_ingest.protocol.history import History
from spark_ingest.protocol.verify import verify
from spark_ingest.upkeep import rewrite
from spark_ingest.upkeep.clean import clean
from spark_ingest.upkeep.erase import erase
from spark_ingest.upkeep.retain import retain
from tests.spark_ingest.jobs import (
    THIRDS,
    assert_sound,
    dead_letters,
    invoke,
    listed_files,
    read_rows,
    run_job,
    table_rows,
)
from tests.spark_ingest.killing_store import DyingStore, Killed
from tests.spark_ingest.tiered import START_MS, TieredLog, json_rows, row
from tests.spark_ingest.upkeep.compacting import (
    EVERY,
    HOUR_MS,
    REWRITES,
    chain_files,
    compacted,
    filled,
    places,
    rule_files,
)


def test_small_files_of_a_day_become_one() -> None:
    source, output = MemoryStore(), MemoryStore(START_MS)
    log = TieredLog(source)
    for at in range(3):
        log.add(0, [*json_rows(5, first=10 * at), row(b'{"id":7}', timestamp=START_MS + HOUR_MS)])
        run_job(source, output, recipe=Recipe(layout=Layout(period=DAY)))
    rows = table_rows(output)
    assert compacted(output).replaced == 3
    assert len(chain_files(output)) == len(rule_files(output)) == 1
    assert table_rows(output) == rows
    assert_sound(output)


@pytest.mark.parametrize("codec", CODECS[PARQUET])
def test_a_new_file_has_the_codec_of_the_newest_one(codec: str) -> None:
    source, output = MemoryStore(), MemoryStore(START_MS)
    log = TieredLog(source)
    for given in ("gzip", codec):
        log.add(0, json_rows(5))
        run_job(source, output, recipe=Recipe(layout=Layout(codec=given)))
    newest = pq.read_metadata(pa.BufferReader(output.get(listed_files(output)[-1]))).row_group(0).column(0).compression
    assert compacted(output).replaced == 2
    [key] = listed_files(output)
    assert pq.read_metadata(pa.BufferReader(output.get(key))).row_group(0).column(0).compression == newest
    assert_sound(output)


def test_files_of_other_formats_stay_and_are_named() -> None:
    source, output = MemoryStore(), MemoryStore(START_MS)
    log = TieredLog(source)
    for at in range(3):
        log.add(0, [*json_rows(5, first=10 * at), row(b"no JSON", 1)])
        run_job(source, output, recipe=Recipe(layout=Layout(JSONL)), bad_percent_max=100)
    files = listed_files(output)
    done = compacted(output)
    assert (done.left, done.unfit) == ({}, {"tables/flights/": "jsonl"})
    assert (listed_files(output), done.replaced) == (files, 3), "dead letters are Parquet in any case"
    assert_sound(output)
    erased = erase(output, "default", b"k1", EVERY, new_id=lambda: "nonce-e")
    assert "tables/flights/: its files are jsonl; only Parquet files are searched" in erased.remains
    assert listed_files(output) == files


def test_small_files_of_an_hour_become_one_with_the_same_rows() -> None:
    _, output = filled()
    rows, letters = table_rows(output), dead_letters(output)
    before = assert_sound(output)
    done = compacted(output)
    assert (done.rewrites, done.replaced, done.files, done.removed, done.left) == ([1], 12, 3, 12, {})
    assert len(listed_files(output)) == 2
    assert (table_rows(output), dead_letters(output)) == (rows, letters)
    after = assert_sound(output)
    assert (after.rows, after.dead_letters, after.leftovers) == (before.rows, before.dead_letters, 0)
    assert (after.rewrites, after.rewritten, after.replaced) == (1, 3, 12)
    assert compacted(output).rewrites == []


def test_runs_go_on_and_their_files_are_compacted_too() -> None:
    source, output = filled()
    compacted(output)
    TieredLog(source, ends={0: 28, 1: 24}).add(0, json_rows(3, first=900))
    assert run_job(source, output).rows == 3
    assert compacted(output).replaced == 2
    assert len(listed_files(output)) == 2
    assert assert_sound(output).rows == 51


def test_files_are_filled_up_to_the_target_and_large_ones_stay() -> None:
    source, output = MemoryStore(), MemoryStore()
    log, noise = TieredLog(source), random.Random(7)
    for at in range(8):
        log.add(0, [row(b'{"text":"%s"}' % noise.randbytes(10_000).hex().encode(), at)])
        run_job(source, output)
    size = max(len(output.objects[key]) for key in listed_files(output))
    done = compacted(output, file_bytes=3 * size - 100)
    assert (done.rewrites, done.replaced, done.files) == ([1], 8, 3)
    assert all(len(output.objects[key]) <= 3 * size for key in listed_files(output))
    assert compacted(output, file_bytes=size).replaced == 0
    assert_sound(output)


def test_objects_that_are_no_rewrites_stay_and_hinder_nothing() -> None:
    _, output = filled()
    compacted(output)
    foreign = [f"{prefix}{name}" for prefix in REWRITES for name in ("0.txt", "readme.txt", "x/")]
    for key in foreign:
        output.put(key, b"by hand")
    assert compacted(output).rewrites == []
    assert assert_sound(output).rewrites == 1
    assert output.objects.keys() >= set(foreign)


def test_a_large_backlog_takes_several_rewrites() -> None:
    _, output = filled()
    rows = table_rows(output)
    done = compacted(output, rewrite_bytes=1)
    assert (done.rewrites, done.files) == ([1, 2, 3], 3)
    assert table_rows(output) == rows
    assert_sound(output)


def test_young_hours_and_other_topics_stay() -> None:
    _, output = filled()  # events at 05:00 and 06:00; the newest commit is of 05:00:04
    assert compacted(output, older_ms=0).replaced == 0
    output.now_ms = START_MS + 2 * HOUR_MS
    source = MemoryStore()
    TieredLog(source, topic="rides").add(0, json_rows(1))
    run_job(source, output, topics="rides")
    assert compacted(output, topics=re.compile("rides")).replaced == 0
    assert compacted(output, older_ms=HOUR_MS).replaced == 4, "of 05:00 only"
    assert_sound(output)


def test_a_dry_run_changes_nothing() -> None:
    _, output = filled()
    before = dict(output.objects)
    done = compacted(output, is_dry=True)
    assert (done.replaced, done.files, done.rewrites) == (12, 3, [])
    assert output.objects == before


def test_replaced_files_stay_for_the_time_of_grace() -> None:
    source, output = filled()
    rows = table_rows(output)
    done = compacted(output, grace_ms=60_000)
    assert (done.removed, done.waiting) == (0, 12)
    assert len(listed_files(output)) > len(rule_files(output)) == 2
    assert read_rows(output, rule_files(output)) == read_rows(output, chain_files(output)) == rows
    assert assert_sound(output).leftovers == 12
    output.now_ms += 60_000
    TieredLog(source, ends={0: 28, 1: 24}).add(0, json_rows(1))
    run_job(source, output)
    assert compacted(output, grace_ms=60_000).removed == 12, "by the time of the newest commit"
    assert_sound(output)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("error", [Killed("here"), StoreUnavailable("503")])
@pytest.mark.parametrize("first", THIRDS)
def test_whatever_operation_it_ends_at_readers_see_old_or_new_files_and_the_next_one_finishes(
    first: int, error: BaseException, is_after: bool
) -> None:
    _, output = filled(2, partitions=1)
    objects, rows, old = dict(output.objects), table_rows(output), listed_files(output)
    counting = DyingStore(output, 0, is_after=False)
    compacted(counting)
    done, new = dict(output.objects), listed_files(output)
    assert table_rows(output) == rows
    assert counting.operations > 40
    for at in range(first, counting.operations + 1, 3):
        output.objects = dict(objects)
        with pytest.raises(type(error)):
            compacted(DyingStore(output, at, error, is_after=is_after))
        assert chain_files(output) in (old, new), at
        assert read_rows(output, rule_files(output)) == rows, at
        assert verify(output, "default")[0].problems == [], at
        compacted(output)
        assert output.objects.keys() == done.keys(), at
        assert [output.objects[key] for key in new] == [done[key] for key in new], at
    assert_sound(output)


def test_a_run_between_a_killed_compaction_and_the_next_goes_on() -> None:
    source, output = filled()
    with pytest.raises(Killed):
        compacted(DyingStore(output, 40, is_after=True))
    TieredLog(source, ends={0: 28, 1: 24}).add(1, json_rows(3, first=900))
    assert run_job(source, output).rows == 3
    compacted(output)
    assert assert_sound(output).rows == len(table_rows(output)) == 51


def test_a_driver_that_another_one_overtook_takes_its_result() -> None:
    _, output = filled()
    rows = table_rows(output)

    class Overtaken(StoreProxy):
        is_first = True

        def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
            super().put(key, data, if_absent=if_absent)
            if self.is_first and key.startswith(names.rewrite_plans_prefix("default")):
                self.is_first = False
                compacted(output)

    done = compacted(Overtaken(output))
    assert (done.rewrites, done.left) == ([1], {})
    assert table_rows(output) == rows
    assert_sound(output)


def test_files_that_a_late_driver_makes_are_removed() -> None:
    _, output = filled()
    compacted(output)
    [made] = [key for key in listed_files(output) if "hr=05" in key]
    output.objects[made.replace("+1.1.", "+1.9.")] = b"of a driver that was suspended"
    assert assert_sound(output).leftovers == 1
    assert compacted(output).removed == 1


def test_a_file_that_cannot_be_read_is_left_and_named_and_the_others_are_compacted() -> None:
    _, output = filled()
    damaged = listed_files(output)[0]
    whole = output.objects[damaged]
    output.objects[damaged] = whole[:-1] + b"x"
    done = compacted(output)
    assert list(done.left.values()) == [
        f"{damaged} differs from the committed file (penstock ingest verify --deep reports all problems)"
    ]
    assert done.files == 2
    output.objects[damaged] = whole
    assert compacted(output).files == 1
    assert_sound(output)


def test_columns_that_came_later_and_wider_ones_are_in_the_new_file() -> None:
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    log.add(0, [row(b'{"id":1,"amt":5,"place":{"x":1}}')])
    run_job(source, output)
    log.add(0, [row(b'{"id":2,"amt":5.5,"place":{"x":1,"y":"n"},"tags":["a"]}', 1)])
    run_job(source, output, widens=True, misfit_max_percent=0)
    compacted(output)
    [key] = listed_files(output)
    [old, new] = read_rows(output, [key])
    assert (str(old["amt"]), str(new["amt"])) == ("5.000000000000000000", "5.500000000000000000")
    assert (old["place"], new["place"]) == ({"x": 1, "y": None}, {"x": 1, "y": "n"})
    assert (old["tags"], new["tags"]) == (None, ["a"])
    assert_sound(output)


@pytest.mark.parametrize("column", ["event", "_key"])
def test_the_newest_row_of_each_value_stays(column: str) -> None:
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    for at in range(3):
        log.add(
            0,
            [row(b'{"event":"e%d","n":%d}' % (one % 4, at), at * 10 + one, key=b"e%d" % (one % 4)) for one in range(6)],
        )
        log.add(1, [row(b'{"n":%d}' % at, at)])
        run_job(source, output)
    done = compacted(output, distinct=column)
    rows = table_rows(output)
    assert done.dropped == {"flights": 14}
    assert places(rows) == [(0, 14), (0, 15), (0, 16), (0, 17), (1, 0), (1, 1), (1, 2)]
    assert assert_sound(output).dropped == {"tables/flights/": 14}
    assert compacted(output, distinct=column).rewrites == []
    log.add(0, [row(b'{"event":"e1"}', 90, key=b"e1")])
    run_job(source, output)
    assert compacted(output, distinct=column).dropped == {"flights": 1}
    assert_sound(output)
    assert compacted(output, distinct=column, file_bytes=10).left.keys() == {"tables/flights/dt=2013-11-21/hr=05/"}


def test_retained_and_archived_files_agree_with_rewrites() -> None:
    _, output = filled()
    compacted(output)
    clean(output, "default", keep_commits=1, keep_ms=0, archive_commits=2)
    assert_sound(output)
    output.now_ms += 40 * 24 * HOUR_MS
    key = names.commit_key("default", 4)
    output.put(key, output.objects[key])
    assert retain(output, "default", EVERY, 30).left == []
    assert listed_files(output) == []
    assert_sound(output)
    assert compacted(output).rewrites == []


def test_a_group_whose_files_were_retired_meanwhile_is_left() -> None:
    _, output = filled()
    with pytest.raises(Killed):
        compacted(DyingStore(output, 32, is_after=True))
    assert Rewrites(output, "default").plan(1)
    output.now_ms += 40 * 24 * HOUR_MS
    key = names.commit_key("default", 4)
    output.put(key, output.objects[key])
    retain(output, "default", EVERY, 30)
    assert len(compacted(output).left) in (2, 3)
    assert_sound(output)
    assert compacted(output).left == {}


def test_old_rewrites_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = filled()
    rows = table_rows(output)
    monkeypatch.setattr(rewrite, "FOLD_AFTER", 2)
    compacted(output, rewrite_bytes=1)
    assert [key for key in output.objects if "/rewrites/" in key] == [names.folded_rewrites_key("default", 3)]
    assert table_rows(output) == rows
    assert_sound(output)
    TieredLog(source, ends={0: 28, 1: 24}).add(1, json_rows(3, first=900))
    run_job(source, output)
    assert compacted(output).rewrites == [4]
    assert assert_sound(output).rewrites == 4


def test_a_kill_while_folding_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, output = filled(2)
    monkeypatch.setattr(rewrite, "FOLD_AFTER", 2)
    compacted(output, rewrite_bytes=1, grace_ms=10**9)
    objects = dict(output.objects)
    counting = DyingStore(output, 0, is_after=False)
    compacted(counting)
    done = dict(output.objects)
    for at in range(1, counting.operations + 1):
        output.objects = dict(objects)
        with pytest.raises(Killed):
            compacted(DyingStore(output, at, is_after=True))
        assert assert_sound(output).rewrites == 3, at
        compacted(output)
        assert output.objects.keys() == done.keys(), at


def test_tables_of_a_catalog_need_their_file() -> None:
    _, output = filled()
    History(output, "default").mark_published()
    before = dict(output.objects)
    with pytest.raises(IngestRefused, match="Iceberg tables have the files of job default"):
        compacted(output)
    assert output.objects == before


def test_a_job_without_commits_has_nothing_to_compact() -> None:
    assert compacted(MemoryStore()).rewrites == []


@pytest.fixture
def lake(tmp_path: Path) -> ObjectStore:
    source, output = MemoryStore(), open_store((tmp_path / "lake").as_uri())
    log = TieredLog(source)
    for at in range(3):
        log.add(0, json_rows(3, first=at))
        run_job(source, output)
    return output


def test_the_command_reports_what_it_did(lake: ObjectStore) -> None:
    given = ["compact", "--output", lake.url]
    dry = json.loads(invoke(*given, "--dry-run", "--json").stdout)
    assert (dry["files_replaced"], dry["files"], dry["rewrites"]) == (3, 1, [])
    done = invoke(*given)
    assert done.exit_code == 0
    assert re.search(r"3 files, [\d.]+ KiB, became 1\.\n3 replaced files removed\.", done.output)
    verified = invoke("verify", "--deep", "--output", lake.url)
    assert verified.exit_code == 0
    assert "1 rewrite made 1 file of 3" in verified.output
    refused = invoke(*given, "--to", "day")
    assert "files of these tables are in directories of hours" in refused.output
