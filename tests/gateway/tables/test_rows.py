"""The rows of a table: read in any pieces, with an index that may be ahead, the last rows are the fold of the log."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gateway.tables.rows import rows_of

LOGS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.none() | st.binary(max_size=1)), max_size=30)


class Record(NamedTuple):
    """A record of a log."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]


def records(log) -> list[Record]:
    return [Record(at, 0, key.encode(), value, []) for at, (key, value) in enumerate(log)]


def fold(log) -> dict[bytes, bytes]:
    rows = {record.key: record.value for record in records(log)}
    return {key: value for key, value in rows.items() if value is not None}


@given(LOGS, st.data())
def test_pieces_are_the_table_whatever_comes_while_they_are_read(log, data):
    end = data.draw(st.integers(0, len(log)))
    ahead, at, rows = end, 0, {}
    while at < end:
        ahead = data.draw(st.integers(ahead, len(log)))
        last = {record.key: record.offset for record in records(log)[:ahead]}
        until = data.draw(st.integers(at + 1, end))
        found = rows_of(records(log)[at:until], last.get, end, with_deletes=False)
        rows |= {record.key: record.value for record in found}
        at = until
    assert {key: value for key, value in rows.items() if value is not None} == fold(log[:end])


@given(LOGS, st.data())
def test_a_reader_that_resumes_learns_of_every_deletion(log, data):
    first = data.draw(st.integers(0, len(log)))
    last = {record.key: record.offset for record in records(log)}
    changes = rows_of(records(log)[first:], last.get, len(log), with_deletes=True)
    rows = fold(log[:first]) | {record.key: record.value for record in changes}
    assert {key: value for key, value in rows.items() if value is not None} == fold(log)
    assert [record.offset for record in changes] == sorted(last[key] for key in last if last[key] >= first)
