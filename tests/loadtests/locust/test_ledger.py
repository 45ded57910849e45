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


@pytest.mark.parametrize(
    ("records", "next_offset", "faults"),
    [
        pytest.param([record(0), record(1), record(2)], 3, [], id="in order"),
        pytest.param([record(0), record(1, "b", 0), record(2, "b", 1), record(3, "a", 1)], 4, [], id="two producers"),
        pytest.param([record(0), record(2, sequence=1)], 3, ["offset 2 came where 1 was due"], id="a gap"),
        pytest.param([record(0), record(0, sequence=1)], 1, ["offset 0 came where 1 was due"], id="an offset twice"),
        pytest.param([record(0), record(1, sequence=2)], 2, ["number 2 came too early, 1 was due"], id="a lost record"),
        pytest.param([record(0), record(1, sequence=0)], 2, ["number 0 came again or late"], id="a record twice"),
        pytest.param([record(0, sequence=1), record(1, sequence=0)], 2, ["number 1", "number 0"], id="swapped records"),
        pytest.param([record(0)], 5, ["continues at 5"], id="records are passed over"),
    ],
)
def test_what_is_lost_repeated_or_swapped_is_found(records, next_offset, faults):
    found = faults_of(*records, next_offset=next_offset)
    assert len(found) == len(faults)
    assert all(part in fault for part, fault in zip(faults, found, strict=True))


@pytest.mark.parametrize("text", ["", 'quote " and \\', "line\nbreak", "äßλ漢🙂", "\u2028"])
def test_a_value_survives_json_however_it_is_spelled(text):
    first = record(0, text=text)
    assert faults_of(json.loads(json.dumps(first, ensure_ascii=False))) == []
    assert faults_of(json.loads(json.dumps(first, ensure_ascii=True, indent=2, sort_keys=True))) == []


@pytest.mark.parametrize("member", ["producer", "sequence", "sent_ms", "text", "crc"])
def test_a_changed_value_is_found(member):
    bad = copy.deepcopy(record(0))
    bad["value"][member] = "other" if isinstance(bad["value"][member], str) else bad["value"][member] + 1
    assert "never sent" in faults_of(bad)[0]


@pytest.mark.parametrize("value", [None, 5, "text", [], {}])
def test_a_foreign_value_is_found(value):
    assert "never sent" in faults_of({"offset": 0, "value": value})[0]


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
