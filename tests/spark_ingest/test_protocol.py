"""Plan, execute, commit: after a crash at any step every record of the log becomes one row and stays one row."""

from __future__ import annotations

import threading
from itertools import count

import msgspec
import orjson
import pytest

from engine.testing.memory_store import MemoryStore
from engine.testing.store_proxy import StoreProxy
from engine.tiering.shipping.garbage_collection import remove_topic
from engine.tiering.store.store import ObjectStore
from spark_ingest.errors import IngestRefused, LostRecords, NoEventTime, OutputConflict, TooManyBadRecords
from spark_ingest.layout import DEFAULT, Field, Layout
from spark_ingest.output import names
from spark_ingest.plan import DEAD_LETTER, FAIL, Plan, Recipe, decode, encode, task_specs
from spark_ingest.protocol.history import History
from spark_ingest.protocol.runner import abandon
from tests.spark_ingest.jobs import (
    NOW_MS,
    Remembering,
    another_output,
    assert_sound,
    committed_files,
    dead_letters,
    drive_at_once,
    listed_files,
    run_job,
    table_rows,
)
from tests.spark_ingest.killing_store import Killed, KillingStore
from tests.spark_ingest.tiered import START_MS, TOPIC_ID, TieredLog, json_rows, row


@pytest.fixture
def log(source: MemoryStore) -> TieredLog:
    """Create two partitions, three segments, records of three hours."""
    log = TieredLog(source)
    log.add(0, json_rows(60))
    log.add(0, [row(b'{"id":%d,"name":"late"}' % at, at, timestamp=START_MS + 3_600_000 * 2) for at in range(60, 75)])
    log.add(1, [row(b'{"id":%d}' % at, at * 300, key=b"k") for at in range(40)])
    return log


def assert_table_is_log(output: ObjectStore, log: TieredLog) -> None:
    rows = table_rows(output, log.topic)
    found = [(one["_partition"], one["_offset"], one["_key"], one["id"]) for one in rows]
    expected = [
        (partition, offset, key, orjson.loads(value or b"{}")["id"]) for partition, offset, key, value in log.records()
    ]
    assert found == expected
    assert listed_files(output, log.topic) == committed_files(output)


def test_every_record_becomes_a_row_and_a_rerun_adds_nothing(
    source: MemoryStore, output: MemoryStore, log: TieredLog
) -> None:
    first = run_job(source, output)
    assert first.rows == 115
    assert_table_is_log(output, log)
    before = dict(output.objects)
    again = run_job(source, output)
    assert (again.rows, again.plans) == (0, [])
    assert output.objects == before


def test_a_run_takes_only_what_is_new(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    run_job(source, output)
    log.add(1, json_rows(25, first=1000))
    assert run_job(source, output).rows == 25
    assert_table_is_log(output, log)


def test_a_large_backlog_is_taken_in_several_commits(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    done = run_job(source, output, plan_bytes_max=1 << 10)
    assert len(done.commits) > 2
    assert done.rows == 115
    assert_table_is_log(output, log)


def puts_of_a_run(log: TieredLog, recipe: Recipe | None = None) -> int:
    counting = KillingStore(MemoryStore(), 0, is_after=False)
    run_job(log.store, counting, recipe=recipe)
    return counting.puts


DIVIDED = Layout(period="30min", zone="Europe/Berlin", directories="%Y/%m/%d/%H/%M", fields=(Field("by_id", "name"),))


@pytest.mark.parametrize(("is_after", "layout"), [(False, DEFAULT), (True, DEFAULT), (True, DIVIDED)])
def test_a_kill_at_any_put_neither_loses_nor_repeats_a_row(
    source: MemoryStore, log: TieredLog, is_after: bool, layout: Layout
) -> None:
    recipe = Recipe(layout=layout)
    puts = puts_of_a_run(log, recipe)
    assert puts > 10
    for kill_at in range(1, puts + 1):
        output = another_output()
        with pytest.raises(Killed):
            run_job(source, KillingStore(output, kill_at, is_after=is_after), recipe=recipe)
        run_job(source, output, recipe=recipe)
        assert_table_is_log(output, log)
        assert run_job(source, output, recipe=recipe).rows == 0
    assert_sound(output)


def test_kill_after_kill_at_every_put_still_ends_well(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    for kill_at in count(1):
        try:
            run_job(source, KillingStore(output, kill_at, is_after=True))
        except Killed:
            continue
        break
    assert_table_is_log(output, log)


def test_a_resumed_plan_makes_the_same_files_though_more_was_tiered_and_options_differ(
    source: MemoryStore, log: TieredLog
) -> None:
    undisturbed, output = another_output(), another_output()
    run_job(source, undisturbed)
    with pytest.raises(Killed):
        run_job(source, KillingStore(output, 7, is_after=True))
    log.add(0, json_rows(10, first=500))
    done = run_job(source, output, recipe=Recipe(payload="raw"), task_bytes=1 << 20)
    assert [is_resumed for _, is_resumed in done.plans] == [True, False]
    for key in listed_files(undisturbed):
        assert output.objects[key] == undisturbed.objects[key]


def test_two_drivers_at_once_make_one_table(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    watchers: list[Remembering] = []
    drive_at_once(lambda: watchers.append(run_job(source, output)))
    assert sum(listener.rows for listener in watchers) == 115
    assert_table_is_log(output, log)


class Meeting(StoreProxy):
    """A store for two drivers: before its first PUT of a kind, each waits for the other one."""

    def __init__(self, store: MemoryStore, part: str, barrier: threading.Barrier) -> None:
        super().__init__(store)
        self._part, self._barrier = part, barrier

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        if self._part in key:
            self._part = "nothing more"
            self._barrier.wait(timeout=20)
        super().put(key, data, if_absent=if_absent)


@pytest.mark.parametrize("part", ["/plans/", "tables/", "/commits/"])
def test_drivers_that_race_for_the_same_object_agree(
    source: MemoryStore, output: MemoryStore, log: TieredLog, part: str
) -> None:
    barrier = threading.Barrier(2)
    watchers: list[Remembering] = []
    drive_at_once(lambda: watchers.append(run_job(source, Meeting(output, part, barrier))))
    assert len(watchers) == 2
    assert sorted(listener.rows for listener in watchers) == [0, 115]
    assert sum(len(listener.others) for listener in watchers) == 1
    assert_table_is_log(output, log)


def test_a_foreign_file_in_the_way_is_neither_overwritten_nor_taken_for_ours(
    source: MemoryStore, output: MemoryStore, log: TieredLog
) -> None:
    run_job(source, output)
    [key, *_] = listed_files(output)
    other = another_output()
    other.objects[key] = b"not ours"
    with pytest.raises(OutputConflict):
        run_job(source, other)
    assert other.objects[key] == b"not ours"
    assert History(other, "default").head() is None


def test_too_many_bad_records_stop_the_plan_before_anything_is_committed(
    source: MemoryStore, output: MemoryStore, log: TieredLog
) -> None:
    log.add(1, [row(b"not json", 1), row(b"[1]", 2), row(b'{"id":1}', 3)])
    with pytest.raises(TooManyBadRecords, match=r"2 of 118 records .*not_an_object 1, not_json 1") as caught:
        run_job(source, output, bad_percent_max=1.0)
    assert "dead_letters/flights/" in caught.value.hint
    assert History(output, "default").head() is None
    done = run_job(source, output, bad_percent_max=2.0)  # the limit is not part of the plan
    assert (done.rows, done.commits[0].bad) == (116, 2)
    assert [(one["_partition"], one["_offset"], one["_value"], one["_reason"]) for one in dead_letters(output)] == [
        (1, 40, b"not json", "not_json"),
        (1, 41, b"[1]", "not_an_object"),
    ]


def test_a_plan_that_cannot_succeed_can_be_abandoned(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    log.add(1, [row(b'{"when":"soon"}', 1)])
    wanted = {"bad_percent_max": 100.0}
    with pytest.raises(NoEventTime, match="flights partition 0 offset 0"):
        run_job(source, output, recipe=Recipe(event_time="when", event_time_fallback=FAIL), **wanted)
    with pytest.raises(NoEventTime):
        run_job(source, output, **wanted)  # the plan's own recipe applies
    assert abandon(output, "default", NOW_MS) is not None
    assert listed_files(output) == []
    done = run_job(source, output, recipe=Recipe(event_time="when", event_time_fallback=DEAD_LETTER), **wanted)
    assert (done.rows, done.commits[0].bad, done.commits[0].number) == (0, 116, 2)
    assert abandon(output, "default", NOW_MS) is None


def test_an_abandoned_plan_leaves_no_file_and_its_records_come_with_the_next(
    source: MemoryStore, output: MemoryStore, log: TieredLog
) -> None:
    with pytest.raises(Killed):
        run_job(source, KillingStore(output, 8, is_after=True))
    assert listed_files(output)
    abandoned = abandon(output, "default", NOW_MS)
    assert abandoned is not None
    assert listed_files(output) == []
    run_job(source, output)
    assert_table_is_log(output, log)


def test_a_table_has_one_job(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    run_job(source, output)
    with pytest.raises(IngestRefused, match="belongs to job default"):
        run_job(source, output, name="other")


def test_records_that_retention_took_before_they_were_read_are_reported(
    source: MemoryStore, output: MemoryStore, log: TieredLog
) -> None:
    run_job(source, output)
    log.add(0, json_rows(30, first=100))
    log.raise_log_start(0, 90)
    with pytest.raises(LostRecords, match="flights partition 0: 15 records, offsets 75 to 89"):
        run_job(source, output)
    ran = run_job(source, output, on_lost="skip")
    assert ran.rows == 15
    assert [one.records for one in ran.commits[0].lost] == [15]


def test_a_store_that_went_backwards_is_reported(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    older = MemoryStore()
    older.objects = dict(source.objects)
    log.add(0, json_rows(30, first=100))
    run_job(source, output)
    with pytest.raises(LostRecords, match="the store ends at 75"):
        run_job(older, output)


def test_a_segment_that_vanished_after_planning_is_reported(
    source: MemoryStore, output: MemoryStore, log: TieredLog
) -> None:
    with pytest.raises(Killed):
        run_job(source, KillingStore(output, 3, is_after=True))
    for key in [key for key in source.objects if key.endswith(".log")]:
        del source.objects[key]
    with pytest.raises(
        LostRecords, match=r"flights: segment .* is gone .*penstock tier repair .*penstock ingest abandon"
    ):
        run_job(source, output)


@pytest.mark.parametrize("is_after", [False, True])
def test_a_plan_is_resumed_though_its_segments_were_merged_and_removed(
    source: MemoryStore, log: TieredLog, is_after: bool
) -> None:
    """A plan names objects. Those that a merge has replaced go a day later; a killed run may come back after that."""
    log.add(0, json_rows(50, first=75))
    for first in (40, 65):
        log.add(1, json_rows(25, first=first))
    before, ends = dict(source.objects), dict(log.ends)
    for kill_at in range(1, puts_of_a_run(log, Recipe()) + 1):
        source.objects, log.ends, output = dict(before), dict(ends), another_output()
        with pytest.raises(Killed):
            run_job(source, KillingStore(output, kill_at, is_after=is_after))
        log.merge(0)
        log.merge(1)
        run_job(source, output)
        assert_table_is_log(output, log)
        assert run_job(source, output).rows == 0


def test_a_new_job_may_begin_at_the_end(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    assert run_job(source, output, start="latest").rows == 0
    log.add(0, json_rows(5, first=200))
    assert run_job(source, output, start="latest").rows == 5


def test_a_topic_that_was_made_again_starts_again(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    run_job(source, output)
    log.add(0, json_rows(5, first=100))  # too late: the topic is deleted before the next run
    source.now_ms += 1
    again = TieredLog(source, topic_id="b" * 32)
    again.add(0, json_rows(75))
    again.add(1, json_rows(3))
    for on_lost in ("fail", "skip"):
        with pytest.raises(IngestRefused, match=f"has {again.topic_id} of this name, and no marker of a deletion"):
            run_job(source, output, on_lost=on_lost)
    remove_topic(source, log.cluster, log.topic, log.topic_id, 2)
    with pytest.raises(LostRecords, match="flights partition 0: 5 records, offsets 75 to 79"):
        run_job(source, output)
    assert run_job(source, output, on_lost="skip").rows == 78
    assert run_job(source, output).rows == 0
    assert len(table_rows(output)) == 115 + 78
    assert listed_files(output) == committed_files(output)


def test_rows_of_a_topic_that_was_made_again_differ_by_topic_id(
    source: MemoryStore, output: MemoryStore, log: TieredLog
) -> None:
    run_job(source, output)
    again = TieredLog(source, topic_id="b" * 32)
    again.add(0, json_rows(5))
    remove_topic(source, log.cluster, log.topic, log.topic_id, 2)
    run_job(source, output)
    rows = [(one["_topic_id"], one["_partition"], one["_offset"]) for one in table_rows(output)]
    assert len({*rows}) == len(rows) == 120
    assert {one[0] for one in rows} == {log.topic_id, again.topic_id}


def test_a_plan_of_the_generation_before_topic_ids_is_resumed_with_its_own_columns(
    source: MemoryStore, output: MemoryStore, log: TieredLog
) -> None:
    with pytest.raises(Killed):
        run_job(source, KillingStore(output, 3, is_after=True))
    key = names.plan_key("default", 1)
    plan = decode(output.get(key), key, Plan)
    output.objects[key] = encode(msgspec.structs.replace(plan, generation=1))
    output.objects = {key: data for key, data in output.objects.items() if not key.startswith("tables/")}
    assert run_job(source, output).rows == 115
    log.add(0, json_rows(1, first=200))
    run_job(source, output)
    rows = table_rows(output)
    assert [one.get("_topic_id") for one in rows if one["_offset"] in (74, 75)] == [None, log.topic_id]
    assert_table_is_log(output, log)


@pytest.mark.parametrize(("generation", "topic_id"), [(2, None), (3, TOPIC_ID)])
def test_dead_letters_have_the_topic_id_since_generation_3(generation: int, topic_id: str | None) -> None:
    source, output = MemoryStore(), MemoryStore()
    TieredLog(source).add(0, [*json_rows(3), row(b"no JSON")])
    with pytest.raises(Killed):
        run_job(source, KillingStore(output, 3, is_after=True))
    key = names.plan_key("default", 1)
    plan = decode(output.get(key), key, Plan)
    output.objects[key] = encode(msgspec.structs.replace(plan, generation=generation))
    run_job(source, output, bad_percent_max=100)
    assert [one.get("_topic_id") for one in dead_letters(output)] == [topic_id]
    assert {one["_topic_id"] for one in table_rows(output)} == {TOPIC_ID}


def test_chunks_of_a_plan_of_an_earlier_generation_end_where_they_did() -> None:
    source, output = MemoryStore(), MemoryStore()
    TieredLog(source).add(0, json_rows(3))
    with pytest.raises(Killed):
        run_job(source, KillingStore(output, 3, is_after=True))
    plan = decode(output.get(names.plan_key("default", 1)), "plan", Plan)
    found = {at: task_specs(msgspec.structs.replace(plan, generation=at))[0] for at in (4, 5, 6, 7, 8)}
    assert [one.counts_columns for one in found.values()] == [False, True, True, True, True]
    assert [one.bounds_records for one in found.values()] == [False, False, True, True, True]
    assert [one.codes_constants for one in found.values()] == [False, False, False, True, True]
    assert [one.rounds for one in found.values()] == [True, True, True, True, False]
    assert task_specs(plan) == [found[8]]


def test_only_wanted_topics_are_taken(source: MemoryStore, output: MemoryStore, log: TieredLog) -> None:
    for topic in ("flights-2", "trains"):
        TieredLog(source, topic=topic).add(0, json_rows(3))
    assert run_job(source, output, topics="flights.*").rows == 118
    assert listed_files(output, "trains") == []
    assert names.table_prefix("flights-2") in "".join(listed_files(output, "flights-2"))
