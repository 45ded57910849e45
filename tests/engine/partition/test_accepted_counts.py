"""The counts of accepted records: committed batches only, by the ten minutes of their greatest timestamps."""

from engine.format.batch import Header, Row, encode, read_header
from engine.format.batch_header import CONTROL
from engine.partition import accepted_counts
from engine.partition.accepted_counts import PERIOD_MS, AcceptedCounts


def batch(base_offset: int, *periods: int) -> Header:
    """Return the header of a batch with a record in each of these periods."""
    rows = [Row(PERIOD_MS * period, None, b"1", []) for period in periods]
    return read_header(encode(rows))._replace(base_offset=base_offset)


def test_a_batch_counts_once_it_is_committed_under_its_greatest_timestamp():
    counts = AcceptedCounts()
    counts.written.append([batch(0, 7, 8), batch(2, 8)])
    counts.settle(0)
    assert counts.take(1) == {}
    assert counts.take(2) == {8: 2}
    counts.written.append([batch(3, 9)])
    counts.settle(3)
    assert counts.take(4) == {8: 1, 9: 1}
    assert counts.take(4) == {}


def test_a_batch_that_is_cut_off_and_one_of_the_log_itself_do_not_count():
    counts = AcceptedCounts()
    control = batch(2, 5)
    counts.written.append([batch(0, 5), batch(1, 5), control._replace(attributes=control.attributes | CONTROL)])
    counts.cut(1)
    assert counts.take(10) == {5: 1}


def test_batches_that_wait_for_long_share_entries(monkeypatch):
    """A leader without its replicas may append for minutes, and the counts stay small."""
    monkeypatch.setattr(accepted_counts, "PENDING_MAX", 2)
    counts = AcceptedCounts()
    counts.written.append([batch(at, 5) for at in range(100)])
    counts.settle(0)
    assert "1 batches pending" in repr(counts)
    assert counts.take(100) == {5: 100}
