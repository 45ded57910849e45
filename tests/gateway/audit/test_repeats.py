"""Each occurrence is reported once: the first of a minute alone, the others as one number."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.repeats import KEYS_MAX, Repeats


def test_the_first_is_reported_at_once_and_the_others_are_counted():
    repeats: Repeats[str, str] = Repeats()
    assert [repeats.add("a", "g", 5.0), repeats.add("a", "g", 6.0), repeats.add("b", "g", 7.0)] == [True, False, True]
    assert (repeats.left_s(64.0), repeats.left_s(65.0)) == (1.0, 0.0)
    assert repeats.end() == ([("a", 1)], [])
    assert repeats.is_empty
    assert repeats.add("a", "g", 66.0), "the next minute"


def test_ten_thousand_callers_take_bounded_memory_and_all_are_counted():
    repeats: Repeats[int, str] = Repeats()
    reported = sum(repeats.add(key, "denied", 0.0) for key in range(10_000) for _ in range(2))
    assert reported == KEYS_MAX
    kept, others = repeats.end()
    assert (len(kept), sum(count for _, count in kept)) == (KEYS_MAX, KEYS_MAX)
    assert others == [("denied", 2 * (10_000 - KEYS_MAX))]


@given(st.lists(st.tuples(st.integers(0, 3 * KEYS_MAX), st.booleans())))
def test_what_is_reported_and_counted_is_all(steps):
    repeats: Repeats[int, str] = Repeats()
    reported: Counter[str] = Counter()
    for key, ends in steps:
        reported["all"] += repeats.add(key, "all", 0.0)
        if ends:
            kept, others = repeats.end()
            reported["all"] += sum(count for _, count in kept) + sum(count for _, count in others)
    kept, others = repeats.end()
    assert reported["all"] + sum(count for _, count in (*kept, *others)) == len(steps)
