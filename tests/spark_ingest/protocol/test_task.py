"""One task: its rows, its files and their names; a task is a pure function."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.errors import Corrupt
from engine.format.batch import Row, encode
from engine.testing.memory_store import MemoryStore
from spark_ingest.decode import value_costs
from spark_ingest.errors import IngestRefused
from spark_ingest.layout import Layout
from spark_ingest.output import rolling_files
from spark_ingest.output.rolling_files import RollingFiles, is_full
from spark_ingest.output.schema_object import table_ddl
from spark_ingest.plan import DEAD_LETTER, RAW, RECORD, Recipe, Task, TaskSpec
from spark_ingest.protocol import chunks as harvest
from spark_ingest.protocol import task as task_module
from spark_ingest.protocol.results import TaskResult
from spark_ingest.protocol.sample import schema_of
from spark_ingest.protocol.task import run_task
from spark_ingest.source.discovery import discover, slices_of
from spark_ingest.types.json_types import fixed_bytes
from spark_ingest.types.standard_columns import STANDARD_COLUMNS
from tests.spark_ingest.jobs import dead_letters, listed_files, table_rows
from tests.spark_ingest.tiered import CLUSTER, START_MS, TieredLog, json_rows, row, undecodable_batch

MEMBERS = [["id", "bigint"], ["name", "string"]]


def order_for(log: TieredLog, recipe: Recipe | None = None, members: list[list[object]] = MEMBERS) -> TaskSpec:
    recipe = recipe or Recipe()
    partitions = discover(log.store, CLUSTER, lambda topic: topic == log.topic)
    slices = tuple(one for part in partitions for one in slices_of(part, part.log_start, part.tiered_end, {}))
    return TaskSpec(7, recipe, schema_of(members, recipe.payload), Task(0, log.topic, slices), log.topic_id)


def run(log: TieredLog, recipe: Recipe | None = None) -> tuple[TaskResult, MemoryStore]:
    output = MemoryStore()
    return run_task(order_for(log, recipe), log.store, output, clock=lambda: 0.0), output


def log_of(*rows: Row) -> TieredLog:
    log = TieredLog(MemoryStore())
    log.add(0, rows)
    return log


def test_a_row_holds_the_record_and_its_members() -> None:
    headers = [("trace", b"1"), ("empty", None), ("trace", b"2")]
    log = log_of(row(b'{"id":5,"name":"x","more":[1]}', 1, key=b"\xff", headers=headers))
    result, output = run(log)
    [one] = table_rows(output)
    when = datetime(2013, 11, 21, 5, 0, 1, tzinfo=UTC)
    assert one == {
        "_topic": "flights",
        "_topic_id": log.topic_id,
        "_partition": 0,
        "_offset": 0,
        "_timestamp": when,
        "_key": b"\xff",
        "_headers": headers,
        "_event_time": when,
        "_ingest_commit": 7,
        "_schema_id": schema_of(MEMBERS, "json").schema_id,
        "id": 5,
        "name": "x",
        "_extra": '{"more":[1]}',
    }
    assert result.seen == [["more", ["array", "bigint"]]]


@pytest.mark.parametrize("headers", [[], [("trace", b"1")]])
def test_tombstones_and_headers_are_left_out_where_a_step_says_so(headers: list[tuple[str, bytes]]) -> None:
    log = log_of(row(b'{"id":1}', headers=headers), row(None, 1, headers=headers), row(b"[]", 2, headers=headers))
    kept, dropped = {}, {}
    for found, steps in ((kept, ()), (dropped, ({"do": "drop-tombstones"}, {"do": "drop-headers"}))):
        result, output = run(log, Recipe(transforms=steps))
        found.update({one["_offset"]: one["_headers"] for one in table_rows(output)}, filtered=result.filtered)
        assert [one["_headers"] for one in dead_letters(output)] == [headers], "a dead letter is the record itself"
    assert kept == {0: headers, 1: headers, "filtered": 0}
    assert dropped == {0: [], "filtered": 1}


def test_rows_go_to_the_hour_of_their_event_in_order_of_offsets() -> None:
    times = ["2013-11-21T23:59:59Z", "2013-11-22T00:00:00Z", "2013-11-21T18:59:59-05:00", "1969-12-31T23:00:00Z"]
    log = log_of(*(row(b'{"id":%d,"t":"%s"}' % (at, time.encode())) for at, time in enumerate(times)))
    _, output = run(log, Recipe(event_time="t"))
    name = "flights+0+00000000000000000000-00000000000000000003+7.parquet"
    assert listed_files(output) == [
        f"tables/flights/dt=1969-12-31/hr=23/{name}",
        f"tables/flights/dt=2013-11-21/hr=23/{name}",
        f"tables/flights/dt=2013-11-22/hr=00/{name}",
    ]
    second = pq.read_table(pa.BufferReader(output.get(listed_files(output)[1])))
    assert second["id"].to_pylist() == [0, 2]


def test_several_partitions_share_files_named_after_both_ends() -> None:
    log = log_of(*json_rows(3))
    log.add(2, json_rows(5))
    result, output = run(log)
    [key] = listed_files(output)
    assert key.endswith("flights+0-2+00000000000000000000-00000000000000000004+7.parquet")
    assert [(one["_partition"], one["_offset"]) for one in table_rows(output)] == [
        *((0, at) for at in range(3)),
        *((2, at) for at in range(5)),
    ]
    assert (result.files[0].first, result.files[0].last, result.files[0].rows) == ((0, 0), (2, 4), 8)


def test_a_task_is_a_pure_function() -> None:
    log = log_of(*json_rows(500), row(b"bad"), row(b'{"id":"x"}', timestamp=START_MS + 10**7))
    first, second = run(log), run(log)
    assert first[0] == second[0]
    assert first[1].objects == second[1].objects
    assert len(first[1].objects) == 3


def test_the_files_of_one_schema_agree_whatever_is_in_them() -> None:
    full, empty = run(log_of(*json_rows(2000)))[1], run(log_of(row(None)))[1]
    schemas = [pq.read_schema(pa.BufferReader(one.get(listed_files(one)[0]))) for one in (full, empty)]
    assert schemas[0] == schemas[1]


def test_the_published_ddl_names_the_columns_of_the_files() -> None:
    _, output = run(log_of(*json_rows(1)))
    names = pq.read_schema(pa.BufferReader(output.get(listed_files(output)[0]))).names
    ddl = table_ddl("json", schema_of(MEMBERS, "json"))
    assert [name for name in names if f"`{name}` " in ddl] == names
    assert {name for name in names if name.startswith("_")} == set(STANDARD_COLUMNS) - {"_value"}


def test_raw_tables_keep_values_as_they_are_and_may_have_event_times() -> None:
    log = log_of(row(b"\x00\xff"), row(b'{"t":"2013-11-22"}'), row(None))
    _, output = run(log, Recipe(payload=RAW, event_time="t"))
    assert [one["_value"] for one in table_rows(output)] == [b"\x00\xff", b'{"t":"2013-11-22"}', None]
    assert len(listed_files(output)) == 2


def test_without_an_event_time_the_record_has_the_policy_decides() -> None:
    log = log_of(row(b'{"t":"soon"}'), row(b'{"t":"2013-11-22"}'), row(b"{}"), row(b'{"t":5}'))
    taken, output = run(log, Recipe(event_time="t", event_time_fallback=RECORD))
    assert (taken.rows, taken.bad, taken.fallbacks) == (4, 0, 3)
    assert table_rows(output)[0]["_event_time"] == datetime(2013, 11, 21, 5, tzinfo=UTC)
    refused, output = run(log, Recipe(event_time="t", event_time_fallback=DEAD_LETTER))
    assert (refused.rows, refused.bad, refused.reasons) == (1, 3, {"no_event_time": 3})


@pytest.mark.parametrize("timestamp", [-1, 300_000_000_000_000])
def test_a_record_without_any_time_is_never_given_one(timestamp: int) -> None:
    result, output = run(log_of(row(b'{"id":2}'), row(b'{"id":1}', timestamp=timestamp)))
    assert (result.rows, result.reasons) == (1, {"no_event_time": 1})
    [letter] = dead_letters(output)
    assert (letter["_timestamp"], letter["_value"]) == (None, b'{"id":1}')
    assert "dt=__HIVE_DEFAULT_PARTITION__" in result.dead_letters[0].key


def test_a_dead_letter_keeps_everything_of_its_record() -> None:
    result, output = run(log_of(row(b"{}"), row(b"\xff\x00", 1, key=b"k", headers=[("h", b"v")])))
    [letter] = dead_letters(output)
    assert letter == {
        "_topic": "flights",
        "_partition": 0,
        "_offset": 1,
        "_last_offset": 1,
        "_timestamp": datetime(2013, 11, 21, 5, 0, 1, tzinfo=UTC),
        "_key": b"k",
        "_value": b"\xff\x00",
        "_headers": [("h", b"v")],
        "_reason": "not_json",
        "_message": letter["_message"],
        "_ingest_commit": 7,
        "_schema_id": schema_of(MEMBERS, "json").schema_id,
    }
    assert f"dt={date(2013, 11, 21)}/" in result.dead_letters[0].key


def test_a_batch_that_cannot_be_decoded_is_one_dead_letter_and_counts_its_records() -> None:
    batch = undecodable_batch()
    log = TieredLog(MemoryStore())
    log.add_batches(0, [encode(json_rows(2)), batch, encode(json_rows(1))], [0], 10)
    result, output = run(log)
    assert (result.rows, result.bad, result.absent, result.reasons) == (3, 7, 0, {"undecodable_batch": 7})
    [letter] = dead_letters(output)
    assert (letter["_offset"], letter["_last_offset"], letter["_value"][21:]) == (2, 8, bytes(batch[21:]))


def test_corrupt_bytes_fail_the_task_and_leave_no_file() -> None:
    log = log_of(*json_rows(10))
    [key] = [key for key in log.store.objects if key.endswith(".log")]  # type: ignore[attr-defined]
    data = bytearray(log.store.get(key))
    data[70] ^= 1
    log.store.put(key, bytes(data))
    output = MemoryStore()
    with pytest.raises(Corrupt):
        run_task(order_for(log), log.store, output)
    assert output.objects == {}


def test_blocks_may_end_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(*json_rows(95), row(b"bad"), row(b'{"id":1.5}'))
    log.add(1, json_rows(33))
    whole = run(log)
    monkeypatch.setattr(harvest, "BLOCK_RECORDS", 1)
    assert run(log)[1].objects == whole[1].objects


@pytest.mark.parametrize("chunk_bytes", [1, 4000])
def test_a_task_that_outgrows_memory_is_written_in_chunks(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    """Each chunk is a run of its own. Together they hold the rows of one run, and name the same range."""
    log = log_of(*json_rows(45), row(b"bad"), *json_rows(15, first=46))
    log.add(3, json_rows(30))
    whole, one_file = run(log)
    monkeypatch.setattr(task_module, "chunks", partial(harvest.chunks, chunk_bytes=chunk_bytes))
    parts, several = run(log)
    assert table_rows(several) == table_rows(one_file)
    assert (parts.rows, parts.bad, parts.absent, parts.reasons) == (whole.rows, whole.bad, whole.absent, whole.reasons)
    bounds = [(file.first, file.last) for file in parts.files]
    assert bounds == sorted(bounds)
    assert len(parts.files) == {1: 10, 4000: 3}[chunk_bytes]
    assert len({file.key for file in parts.files}) == len(parts.files)


def test_files_grow_from_chunk_to_chunk_to_their_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten chunks make a few files of about the target, which hold the rows of one run in their order."""
    log = log_of(*json_rows(45), row(b"bad"), *json_rows(15, first=46))
    log.add(3, json_rows(30))
    whole, one_file = run(log)
    monkeypatch.setattr(task_module, "chunk_bytes_for", lambda _: 1)
    monkeypatch.setattr(rolling_files, "_GROUP_BYTES_LEAST", 1)
    grown = msgspec.structs.replace(order_for(log, Recipe(layout=Layout(file_bytes=2500))), arrow=pa.__version__)
    output = MemoryStore()
    several = run_task(grown, log.store, output, clock=lambda: 0.0)
    assert table_rows(output) == table_rows(one_file)
    assert (several.rows, several.bad, several.reasons) == (whole.rows, whole.bad, whole.reasons)
    assert [(file.first, file.rows) for file in several.dead_letters] == [((0, 45), 1)]
    bounds = [place for file in several.files for place in (file.first, file.last)]
    assert bounds == sorted(set(bounds))
    assert 1 < len(several.files) < 5
    again = run_task(grown, log.store, output, clock=lambda: 0.0)  # a retry finds its own files
    assert again == several
    with pytest.raises(IngestRefused, match="the plan was made for files of PyArrow 1"):
        run_task(msgspec.structs.replace(grown, arrow="1.0"), log.store, MemoryStore())


def test_open_files_end_when_they_take_too_much_memory() -> None:
    """The largest one ends, although it has not reached its target; every row is in one file."""
    log = TieredLog(MemoryStore())
    rows = [row(b'{"id":%d}' % at, at, timestamp=START_MS + at % 5 * 3_600_000) for at in range(200)]
    log.add(0, rows)
    order = order_for(log, Recipe(layout=Layout(file_bytes=1 << 30)), [["id", "bigint"]])
    files, ended = RollingFiles(order, open_bytes=8_000), []
    for chunk in harvest.chunks(order, log.store, 1):
        table = pa.Table.from_batches(chunk.rows)
        ended += files.add(table, chunk.ranges, chunk.read_bytes)
    early = len(ended)
    ended += files.finish()
    assert early > 0
    assert sum(one.file.rows for one in ended) == 200
    assert len({one.key for one in ended}) == len(ended)


@pytest.mark.parametrize(
    ("size", "rest", "expected"), [(90, 30, False), (145, 0, False), (70, 90, False), (78, 80, True), (97, 1000, True)]
)
def test_a_file_ends_when_it_has_its_share_of_several(size: float, rest: float, expected: bool) -> None:
    assert is_full(size, 8, rest, 100) is expected


def test_columns_that_are_mostly_null_count_where_chunks_and_blocks_end() -> None:
    """A record of 10 bytes has a row of 8 kB. Without this a chunk of such rows took gigabytes."""
    log = log_of(*(row(b'{"m%d":1}' % (at % 1000)) for at in range(2000)))
    order = order_for(log, members=[[f"m{at}", "bigint"] for at in range(1000)])
    found = list(harvest.chunks(order, log.store, 1 << 20))
    assert all(sum(rows.nbytes for rows in one.rows) < 1 << 20 for one in found)
    assert sum(rows.num_rows for one in found for rows in one.rows) == 2000
    [one] = harvest.chunks(order, log.store)
    assert max(rows.nbytes for rows in one.rows) <= harvest.BLOCK_BYTES
    assert len(one.rows) == 2
    older = msgspec.structs.replace(order, counts_columns=False, bounds_records=False)
    assert [len(one.ranges) for one in harvest.chunks(older, log.store, 1 << 20)] == [1]


WIDE_ITEMS = [["id", "bigint"], ["items", ["array", ["struct", [[f"m{at}", "bigint"] for at in range(200)]]]]]


def items(count: int, name: bytes = b"items") -> bytes:
    return b'{"id":1,"%s":[%s]}' % (name, b",".join([b"{}"] * count))


def test_elements_of_arrays_count_where_chunks_and_blocks_end_also_within_a_batch() -> None:
    """`{}` in an array of structs of 200 members is 1.6 kB in Arrow: 100,000 records of 70 bytes took 4 GB."""
    log = TieredLog(MemoryStore(), batch_records=500)
    log.add(0, [row(items(20)) for _ in range(1000)])
    order = order_for(log, members=WIDE_ITEMS)
    found = list(harvest.chunks(order, log.store, 4 << 20))
    assert all(sum(rows.nbytes for rows in one.rows) < 20 << 20 for one in found)
    assert [at for one in found for rows in one.rows for at in rows["_offset"].to_pylist()] == list(range(1000))
    ranges = [(one.start, one.end) for chunk in found for one in chunk.ranges]
    assert ranges == [(0, 261), (261, 500), (500, 761), (761, 1000)]
    assert sum(one.read_bytes for one in found) == len(log.store.get(order.task.slices[0].key))
    older = msgspec.structs.replace(order, bounds_records=False)
    assert [len(one.ranges) for one in harvest.chunks(older, log.store, 4 << 20)] == [1]


def test_dead_letters_count_where_a_chunk_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harvest, "BLOCK_RECORDS", 2_000)
    log = TieredLog(MemoryStore(), batch_records=2_000)
    log.add(0, [row(b"x")] * 6_000)
    assert [len(one.dead) for one in harvest.chunks(order_for(log), log.store, 1 << 20)] == [2_000] * 3
    older = msgspec.structs.replace(order_for(log), bounds_records=False)
    assert [len(one.dead) for one in harvest.chunks(older, log.store, 1 << 20)] == [6_000]


@pytest.mark.parametrize("recipe", [Recipe(), Recipe(transforms=({"do": "drop", "members": ["other"]},))])
def test_a_member_with_too_many_elements_goes_to_extra_and_the_others_stay(recipe: Recipe) -> None:
    large = items(60_000)
    log = log_of(row(items(1)), row(large, 1), row(items(2), 2))
    output = MemoryStore()
    result = run_task(order_for(log, recipe, WIDE_ITEMS), log.store, output, clock=lambda: 0.0)
    assert [(one["id"], one["items"] and len(one["items"])) for one in table_rows(output)] == [
        (1, 1),
        (1, None),
        (1, 2),
    ]
    assert [one["_extra"] for one in table_rows(output)] == [None, "{" + large[len(b'{"id":1,') :].decode(), None]
    assert result.misfits["items"].count == 1


def test_a_value_with_too_many_names_is_the_extra_text_of_its_row() -> None:
    value = b"{%s}" % b",".join(b'"%d":0' % at for at in range(500_001))
    log = log_of(row(b'{"id":5}'), row(value, 1), row(b"[%s]" % value, 2), row(value[:-1], 3), row(value + b"\xff", 4))
    result, output = run(log)
    assert [(one["_offset"], one["id"], one["_extra"]) for one in table_rows(output)] == [
        (0, 5, None),
        (1, None, value.decode()),
    ]
    assert [one["_reason"] for one in dead_letters(output)] == ["not_an_object", "not_json", "not_utf8"]
    assert (result.seen, result.misfits) == ([], {})


def test_records_that_are_decoded_in_runs_give_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [items(at % 5, b"items" if at % 3 else b"other") for at in range(200)]
    log = log_of(*(row(value, at) for at, value in enumerate([*values, b"bad", None])))
    outputs = []
    for run_bytes in (value_costs.RUN_BYTES, 10_000):
        monkeypatch.setattr(value_costs, "RUN_BYTES", run_bytes)
        outputs.append(MemoryStore())
        result = run_task(order_for(log, None, WIDE_ITEMS), log.store, outputs[-1], clock=lambda: 0.0)
        assert (result.rows, result.bad) == (201, 1)
    assert table_rows(outputs[0]) == table_rows(outputs[1])
    assert dead_letters(outputs[0]) == dead_letters(outputs[1])


def test_members_of_structs_and_decimals_count_among_the_columns() -> None:
    inner = ["struct", [["a", "bigint"], ["b", "decimal"], ["c", "null"]]]
    assert fixed_bytes([["one", "string"], ["two", inner], ["three", "null"], ["four", ["array", "bigint"]]]) == 40


def test_many_files_are_stored_side_by_side_and_an_error_in_one_is_raised() -> None:
    log = log_of(*(row(b'{"id":1}', timestamp=START_MS + at * 3_600_000) for at in range(40)))
    result, output = run(log)
    assert [file.key for file in result.files] == listed_files(output)

    class Full(MemoryStore):
        def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
            if len(self.objects) == 20:
                raise OSError("full")
            super().put(key, data, if_absent=if_absent)

    with pytest.raises(OSError, match="full"):
        run_task(order_for(log), log.store, Full())


def test_a_topic_that_spark_would_overlook_gets_a_name_that_it_sees() -> None:
    log = TieredLog(MemoryStore(), topic="_audit")
    log.add(0, json_rows(1))
    _, output = run(log)
    [key] = listed_files(output, "_audit")
    assert key.startswith("tables/+_audit/dt=2013-11-21/hr=05/+_audit+0+")


@pytest.mark.parametrize("seconds", [60, 1800, 7200])
def test_rows_of_an_hour_are_in_order_whether_they_come_in_runs_or_not(seconds: int) -> None:
    """In two partitions, so that each hour has rows of both; the last steps leave no two rows of an hour in a row."""
    log = TieredLog(MemoryStore())
    for partition in (0, 1):
        log.add(partition, [row(b"{}", timestamp=START_MS + at * seconds % 86_400 * 1000) for at in range(240)])
    _, output = run(log)
    hours: dict[str, list[tuple[int, int]]] = {}
    for key in listed_files(output):
        table = pq.read_table(pa.BufferReader(output.get(key)), columns=["_partition", "_offset"])
        assert key.rpartition("/")[0] not in hours
        hours[key.rpartition("/")[0]] = list(zip(*table.to_pydict().values(), strict=True))
    assert all(places == sorted(places) for places in hours.values())
    assert sorted(place for places in hours.values() for place in places) == [
        (partition, at) for partition in (0, 1) for at in range(240)
    ]
