"""Where epochs begin and end in a log: Kafka's cases, and the differences from Kafka."""

from hypothesis import given
from hypothesis import strategies as st

from engine.log.epochs import (
    EpochStart,
    assigned,
    end_offset_for,
    epoch_before,
    truncated_from_end,
    truncated_from_start,
)

KNOWN = [EpochStart(2, 0), EpochStart(4, 10), EpochStart(7, 20)]


def test_a_record_is_of_the_last_epoch_that_begins_at_or_before_it():
    epochs = [EpochStart(1, 0), EpochStart(3, 10)]
    assert [epoch_before(epochs, offset) for offset in (1, 10, 11)] == [1, 1, 3]
    assert epoch_before([EpochStart(3, 10)], 10) == epoch_before([], 1) == -1


def test_a_new_epoch_takes_the_place_of_those_without_a_record():
    assert assigned(KNOWN, 8, 20) == [*KNOWN[:2], EpochStart(8, 20)]
    assert assigned(KNOWN, 7, 30) == KNOWN


def test_records_of_an_older_epoch_replace_a_newer_one_that_left_none():
    """A leader's epoch without a record is lost in a power loss; then records of an epoch in between are copied."""
    assert assigned(KNOWN, 5, 20) == [*KNOWN[:2], EpochStart(5, 20)]


def test_records_of_an_epoch_continue_where_a_newer_one_left_none():
    """Found by the simulator: the newer epoch's start was placed among records of another epoch."""
    assert assigned(KNOWN, 4, 20) == KNOWN[:2]


def test_the_epoch_under_way_keeps_its_start_when_records_are_deleted_within_it():
    """Kafka moves it to log_start. That may be within a batch, where no follower can truncate; found by the
    simulator.
    """
    assert truncated_from_start(KNOWN, 12) == KNOWN[1:]
    assert truncated_from_start(KNOWN, 20) == KNOWN[2:]
    assert truncated_from_start(KNOWN, 0) == KNOWN
    assert truncated_from_start([], 5) == []


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)), max_size=8), st.integers(0, 7), st.integers(0, 30))
def test_what_is_answered_agrees_with_the_records(runs, requested, cut):
    """The simple twin: a list of the epoch of each record."""
    records = [epoch for epoch, count in sorted(runs) for _ in range(count)]
    epochs: list[EpochStart] = []
    for offset, epoch in enumerate(records):
        epochs = assigned(epochs, epoch, offset)
    records = records[:cut]
    epochs = truncated_from_end(epochs, len(records))
    found = end_offset_for(epochs, requested, len(records))
    if not records or requested > records[-1]:
        assert found is None
    else:
        assert found.end_offset == sum(epoch <= requested for epoch in records)
        below = [epoch for epoch in records if epoch <= requested]
        assert found.epoch == (below[-1] if below else requested)
