"""`compact --deduplicate` with columns of every type, and with tables and dead letters that do not have the column."""

from __future__ import annotations

import pytest

from engine.testing.memory_store import MemoryStore
from tests.spark_ingest.jobs import assert_sound, dead_letters, run_job, table_rows
from tests.spark_ingest.tiered import TieredLog, row
from tests.spark_ingest.upkeep.compacting import compacted


def test_dead_letters_are_compacted_without_the_column() -> None:
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    for at in range(3):
        log.add(0, [row(b'{"event":"e"}', at), row(b"no JSON", 1)])
        run_job(source, output, bad_percent_max=100)
    done = compacted(output, distinct="event")
    assert (len(table_rows(output)), len(dead_letters(output)), done.dropped) == (1, 3, {"flights": 2})
    assert_sound(output)


@pytest.mark.parametrize("value", [b"7", b"7.5", b"true", b'"x"'])
def test_a_file_from_before_the_column_has_no_value_of_it(value: bytes) -> None:
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    for at, text in enumerate([b'{"n":0}', b'{"event":%s}' % value, b'{"event":%s}' % value]):
        log.add(0, [row(text, at)])
        run_job(source, output)
    assert compacted(output, distinct="event").dropped == {"flights": 1}
    assert [one["_offset"] for one in table_rows(output)] == [0, 2]
    assert_sound(output)


def test_a_bigint_column_that_became_decimal_is_compared_by_value() -> None:
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    for at, text in enumerate([b'{"event":5}', b'{"event":5.5}', b'{"event":5.0}']):
        log.add(0, [row(text, at)])
        run_job(source, output, widens=True, misfit_max_percent=0)
    assert compacted(output, distinct="event").dropped == {"flights": 1}
    assert_sound(output)


@pytest.mark.parametrize("text", [b'{"event":[1]}', b'{"event":{"a":1}}'])
def test_a_column_without_equality_is_left_and_named(text: bytes) -> None:
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    for at in range(2):
        log.add(0, [row(text, at)])
        run_job(source, output)
    [why] = compacted(output, distinct="event").left.values()
    assert "event" in why
    assert len(table_rows(output)) == 2
    assert_sound(output)


@pytest.mark.parametrize("column", ["_offset", "_partition", "_event_time"])
def test_a_column_of_the_order_can_be_the_distinct_one(column: str) -> None:
    source, output = MemoryStore(), MemoryStore()
    log = TieredLog(source)
    for at in range(2):
        log.add(0, [row(b'{"event":1}', at)])
        run_job(source, output)
    compacted(output, distinct=column)
    assert_sound(output)
