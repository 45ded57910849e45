"""The checks find planted errors."""

import copy
import json

import pytest

from loadtests.locust.ledger import Ledger, make_value


def record(offset, producer="a", sequence=None, text="text"):
    return {"offset": offset, "value": make_value(producer, offset if sequence is None else sequence, 1, text)}


def faults_of(*records, next_offset=None):
    reader = Ledger().begin_reader(0)
    return reader.take(records, records[-1]["offset"] + 1 if next_offset is None else next_offset)


def test_records_in_order_are_right():
    assert faults_of(record(0), record(1), record(2)) == []


def test_two_producers_may_interleave():
    assert faults_of(record(0, "a", 0), record(1, "b", 0), record(2, "b", 1), record(3, "a", 1)) == []


@pytest.mark.parametrize("text", ["", 'quote " and \\', "line\nbreak", "äßλ漢🙂", "\u2028"])
def test_a_value_survives_json_however_it_is_spelled(text):
    first = record(0, text=text)
    assert faults_of(json.loads(json.dumps(first, ensure_ascii=False))) == []
    assert faults_of(json.loads(json.dumps(first, ensure_ascii=True, indent=2, sort_keys=True))) == []


def test_a_gap_in_the_offsets_is_found():
    assert faults_of(record(0), record(2, sequence=1)) == ["partition 0: offset 2 came where 1 was due"]


def test_a_repeated_offset_is_found():
    assert "offset 0 came where 1 was due" in faults_of(record(0), record(0, sequence=1), next_offset=1)[0]


def test_a_lost_record_is_found_though_the_offsets_continue():
    assert faults_of(record(0), record(1, sequence=2)) == ["partition 0: a: number 2 came too early, 1 was due"]


def test_a_record_stored_twice_is_found():
    assert faults_of(record(0), record(1, sequence=0)) == ["partition 0: a: number 0 came again or late, 1 was due"]


def test_swapped_records_are_found():
    assert len(faults_of(record(0, sequence=1), record(1, sequence=0))) == 2


@pytest.mark.parametrize("member", ["producer", "sequence", "sent_ms", "text", "crc"])
def test_a_changed_value_is_found(member):
    bad = copy.deepcopy(record(0))
    bad["value"][member] = "other" if isinstance(bad["value"][member], str) else bad["value"][member] + 1
    assert "never sent" in faults_of(bad)[0]


@pytest.mark.parametrize("value", [None, 5, "text", [], {}])
def test_a_foreign_value_is_found(value):
    assert "never sent" in faults_of({"offset": 0, "value": value})[0]


def test_a_next_offset_that_passes_records_over_is_found():
    assert "continues at 5" in faults_of(record(0), next_offset=5)[0]


def test_an_acknowledged_record_that_nobody_read_is_missing():
    ledger = Ledger()
    reader = ledger.begin_reader(0)
    ledger.acknowledge("a", 0, 2)
    assert reader.take([record(0)], 1) == []
    assert ledger.missing() == ["partition 0: a has 2 acknowledged records, 1 were read"]
    assert reader.take([record(1)], 2) == []
    assert ledger.missing() == []


def test_what_was_stored_but_not_acknowledged_is_no_fault():
    ledger = Ledger()
    ledger.acknowledge("a", 0, 1)
    assert ledger.begin_reader(0).take([record(0), record(1)], 2) == []
    assert ledger.missing() == []


def test_the_furthest_reader_of_the_right_partition_counts():
    ledger = Ledger()
    slow, fast, other = ledger.begin_reader(0), ledger.begin_reader(0), ledger.begin_reader(1)
    slow.take([record(0)], 1)
    fast.take([record(0), record(1)], 2)
    other.take([record(0), record(1), record(2)], 3)
    assert ledger.furthest(0) is fast
    assert ledger.furthest(2).next_offset == 0
