"""Tasks across partitions: every record once, no task too large, rows of one time in few tasks."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.source.slices import Range, Slice, ranges_of
from spark_ingest.source.stripes import PARTITIONS_LEAST, cut_across
from tests.spark_ingest.source.test_slices import slices


def evenly(partitions: int, records: int) -> list[Slice]:
    """Return one segment of 100 bytes a record for each partition."""
    return [Slice(at, str(at), records * 100, 0, records, 0, records) for at in range(partitions)]


@given(slices(), st.integers(1, 1 << 21), st.integers(1, 3000))
def test_stripes_have_each_record_once_and_go_on_where_the_last_one_ended(
    given_slices: list[Slice], target_bytes: int, records_max: int
) -> None:
    reached = {mine: next(some).start for mine, some in groupby(given_slices, lambda one: one.partition)}
    for group in cut_across(given_slices, target_bytes, records_max):
        ranges = ranges_of(group)
        assert [one.partition for one in ranges] == sorted({one.partition for one in ranges})
        assert sum(one.end - one.start for one in ranges) <= records_max
        for one in ranges:
            assert reached[one.partition] == one.start
            reached[one.partition] = one.end
    assert reached == {one.partition: one.end for one in given_slices}


def test_a_task_has_the_same_share_of_each_partition() -> None:
    assert [ranges_of(group) for group in cut_across(evenly(2, 100), 10_000)] == [
        [Range(0, 0, 50), Range(1, 0, 50)],
        [Range(0, 50, 100), Range(1, 50, 100)],
    ]


def test_many_large_partitions_are_striped_in_sets() -> None:
    groups = cut_across(evenly(2 * PARTITIONS_LEAST, 1000), 800_000)
    assert [len(group) for group in groups] == [PARTITIONS_LEAST] * 4
