"""Which small objects become one: whole runs, within bounds, and no byte often."""

from dataclasses import replace
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.tiering.manifest.manifest import ManifestEntry
from engine.tiering.shipping.merge_plan import COUNT_MIN, MergeRules, plan_merge
from tests.engine.tiering.making import entry, local_log

RULES = MergeRules(below_bytes=4000, target_bytes=32_000, min_age_ms=0)


def sized(*sizes: int) -> list[ManifestEntry]:
    """Entries of these sizes; each arrived ten ms after the one before."""
    return [replace(entry(at, at + 1), size_bytes=size, arrived_ms=10 * at) for at, size in enumerate(sizes)]


def chosen(entries: list[ManifestEntry], rules: MergeRules = RULES, log_start: int = 0) -> range:
    found = plan_merge(entries, rules, log_start)
    return range(found[0].base_offset, found[-1].end_offset) if found else range(0)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], range(0)),
        ([100] * 7, range(0)),
        ([100] * 8, range(8)),
        ([100] * 20, range(20)),
        ([4000, *[100] * 8, 4000], range(1, 9)),
        ([3000] * 30, range(10)),  # the target
        ([3000, *[100] * 8], range(1, 9)),  # the first would be more than half
        ([*[100] * 8, 3000], range(8)),
        ([*[100] * 4, 5000, *[100] * 4], range(0)),
    ],
)
def test_the_oldest_run_within_the_bounds_is_chosen(sizes, expected):
    assert chosen(sized(*sizes)) == expected


def test_objects_below_log_start_and_avoided_ones_are_left():
    entries = sized(*[100] * 20)
    assert chosen(entries, log_start=5) == range(5, 20)
    found = plan_merge(entries, RULES, 0, {entries[10].key})
    assert [one.base_offset for one in found] == [*range(10)]


def test_retention_bounds_the_time_and_the_size_of_a_merged_object():
    """An object expires as a whole, so its oldest record stays longer by the span of the object."""
    entries = sized(*[100] * 40)
    by_age = RULES.within_retention(replace(local_log([]), retention_ms=8 * 150))
    assert chosen(entries, by_age) == range(16)
    assert chosen(entries[20:], by_age) == range(20, 36)
    by_size = RULES.within_retention(replace(local_log([]), retention_bytes=8 * 1000))
    assert chosen(entries, by_size) == range(10)
    assert RULES.within_retention(local_log([])) == RULES


@given(st.lists(st.integers(61, 6000), max_size=300))
def test_repeated_merges_end_with_few_objects_and_copy_no_byte_often(sizes):
    entries = sized(*sizes)
    copied = dict.fromkeys((one.base_offset for one in entries), 0)
    while found := plan_merge(entries, RULES):
        assert len(found) >= COUNT_MIN
        total = sum(one.size_bytes for one in found)
        assert total <= RULES.target_bytes
        assert all(one.size_bytes < RULES.below_bytes and 2 * one.size_bytes <= total for one in found)
        for at in range(found[0].base_offset, found[-1].end_offset):
            copied[at] += 1
        start = entries.index(found[0])
        merged = replace(found[0], end_offset=found[-1].end_offset, size_bytes=total, arrived_ms=found[-1].arrived_ms)
        entries[start : start + len(found)] = [merged]
    assert all(count <= log2(RULES.target_bytes / sizes[at]) for at, count in copied.items())
    small = sum(one.size_bytes < RULES.below_bytes for one in entries)
    large = len(entries) - small
    levels = log2(RULES.target_bytes / 61)
    assert small <= (large + 1) * COUNT_MIN * levels
