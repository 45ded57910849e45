"""Each occurrence is reported once: the first of a minute alone, the others as one number."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.repeats import GROUP_KEYS_MAX, GROUPS_MAX, KEYS_MAX, Repeats


def test_the_first_is_reported_at_once_and_the_others_are_counted():
    repeats: Repeats[str, str] = Repeats()
    assert [repeats.add("a", "g", 5.0), repeats.add("a", "g", 6.0), repeats.add("b", "g", 7.0)] == [True, False, True]
    assert (repeats.left_s(64.0), repeats.left_s(65.0)) == (1.0, 0.0)
    assert repeats.end() == ([("a", 1)], [], 0)
    assert repeats.is_empty
    assert repeats.add("a", "g", 66.0), "the next minute"


def test_ten_thousand_callers_take_bounded_memory_and_all_are_counted():
    repeats: Repeats[int, int] = Repeats()
    reported = sum(repeats.add(key, key, 0.0) for key in range(10_000) for _ in range(2))
    assert reported == KEYS_MAX
    kept, groups, others = repeats.end()
    assert (len(kept), sum(count for _, count in kept)) == (KEYS_MAX, KEYS_MAX)
    assert groups == [(group, 2) for group in range(KEYS_MAX, KEYS_MAX + GROUPS_MAX)]
    assert others == 2 * (10_000 - KEYS_MAX - GROUPS_MAX)


def test_one_caller_with_ten_thousand_kinds_hides_no_other():
    """Without a bound of its own, a caller asks for 1,000 names, and whatever comes then in the minute is a number."""
    repeats: Repeats[tuple[str, int], str] = Repeats()
    assert sum(repeats.add(("loud", key), "loud", 0.0) for key in range(10_000)) == GROUP_KEYS_MAX
    assert repeats.add(("quiet", 1), "quiet", 0.0)
    assert repeats.end() == ([], [("loud", 10_000 - GROUP_KEYS_MAX)], 0)


@given(st.lists(st.tuples(st.integers(0, 3 * KEYS_MAX), st.integers(0, 2 * GROUPS_MAX), st.booleans())))
def test_what_is_reported_and_counted_is_all(steps):
    repeats: Repeats[tuple[int, int], int] = Repeats()
    total = 0
    for key, group, ends in [*steps, (0, 0, True)]:
        total += repeats.add((group, key), group, 0.0)
        if ends:
            kept, groups, others = repeats.end()
            total += sum(count for _, count in (*kept, *groups)) + others
    assert total == len(steps) + 1
