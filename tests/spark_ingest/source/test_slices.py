"""Splitting plans into tasks: every record once, no task too large."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.source.slices import Range, Slice, bounded, cut, ranges_of, target_group_bytes


@st.composite
def slices(draw: st.DrawFn) -> list[Slice]:
    """Return a few partitions, each a gapless run of segments; the first and the last may be wanted in part."""
    found: list[Slice] = []
    for partition in range(draw(st.integers(0, 4))):
        base = draw(st.integers(0, 1000))
        mine = []
        for _ in range(draw(st.integers(0, 5))):
            end = base + draw(st.integers(1, 2000))
            mine.append(Slice(partition, f"{partition}/{base}", draw(st.integers(62, 1 << 20)), base, end, base, end))
            base = end
        if mine:
            first = mine[0]
            start = draw(st.integers(first.start, first.end - 1))
            mine[0] = Slice(first.partition, first.key, first.size_bytes, first.start, first.end, start, first.end)
        found += mine
    return found


def offsets(groups: list[tuple[Slice, ...]]) -> list[tuple[str, int]]:
    return [(one.key, at) for one in chain.from_iterable(groups) for at in range(one.start, one.end)]


@given(slices(), st.integers(1, 1 << 21), st.integers(1, 3000))
def test_groups_are_the_slices_in_order_without_gap_or_repetition(
    given_slices: list[Slice], target_bytes: int, records_max: int
) -> None:
    groups = cut(given_slices, target_bytes, records_max)
    assert offsets(groups) == offsets([tuple(given_slices)])
    assert all(groups)
    assert all(one.base_offset <= one.start < one.end <= one.end_offset for group in groups for one in group)


@given(slices(), st.integers(1, 1 << 21), st.integers(1, 3000))
def test_no_group_is_too_large_but_for_a_single_record(
    given_slices: list[Slice], target_bytes: int, records_max: int
) -> None:
    for group in cut(given_slices, target_bytes, records_max):
        records = sum(one.end - one.start for one in group)
        assert records <= records_max
        weight = sum(one.weight_bytes for one in group)
        heaviest = max(-(-one.size_bytes // (one.end_offset - one.base_offset)) for one in group)
        assert weight <= target_bytes * 9 / 8 + heaviest or records == 1


@given(slices(), st.integers(1, 1 << 21))
def test_a_group_covers_one_range_of_each_of_its_partitions(given_slices: list[Slice], target_bytes: int) -> None:
    for group in cut(given_slices, target_bytes):
        partitions = [one.partition for one in ranges_of(group)]
        assert partitions == sorted(set(partitions))


@given(slices(), st.integers(1, 1 << 21))
def test_cutting_is_deterministic(given_slices: list[Slice], target_bytes: int) -> None:
    assert cut(given_slices, target_bytes) == cut(iter(given_slices), target_bytes)


@given(slices(), st.integers(1, 1 << 21), st.integers(0, 1 << 22))
def test_a_bound_takes_the_first_groups_and_never_none(
    given_slices: list[Slice], target_bytes: int, limit_bytes: int
) -> None:
    groups = cut(given_slices, target_bytes)
    taken = bounded(groups, limit_bytes)
    assert taken == groups[: len(taken)]
    assert bool(taken) == bool(groups)
    assert len(taken) <= 1 or sum(one.weight_bytes for group in taken for one in group) <= limit_bytes


def test_small_partitions_share_a_group() -> None:
    small = [Slice(partition, f"{partition}", 1000, 0, 10, 0, 10) for partition in range(4)]
    assert [ranges_of(group) for group in cut(small, 2000)] == [
        [Range(0, 0, 10), Range(1, 0, 10)],
        [Range(2, 0, 10), Range(3, 0, 10)],
    ]


def test_a_large_segment_is_cut_evenly_by_offset() -> None:
    [large] = [Slice(0, "large", 1000, 100, 200, 100, 200)]
    assert [ranges_of(group) for group in cut([large], 250)] == [
        [Range(0, start, start + 25)] for start in (100, 125, 150, 175)
    ]


def test_every_core_gets_a_group_if_that_is_worth_it() -> None:
    assert target_group_bytes(100, target_bytes=64, least_bytes=16, parallelism=2) == 50
    assert target_group_bytes(100, target_bytes=64, least_bytes=16, parallelism=8) == 17
    assert target_group_bytes(10, target_bytes=64, least_bytes=16, parallelism=8) == 10
    assert target_group_bytes(0, target_bytes=64, least_bytes=16, parallelism=8) == 1
    assert target_group_bytes(1000, target_bytes=64, least_bytes=16, parallelism=2) == 63
