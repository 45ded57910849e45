"""Rings of samples: what a gap, a restart of a series and another clock do."""

from math import isnan, nan

from gateway.status.history import SAMPLES, SERIES_MAX, STEP_MS, History, merge
from gateway.status.observer import percentile

NODE = ("node", "", "x")


def shown(values: list[float] | None) -> list[float | None]:
    assert values is not None
    return [None if isnan(value) else value for value in values]


def test_the_last_samples_end_at_the_present_step() -> None:
    history = History(0)
    for step in range(1, 5):
        history.put(step * STEP_MS, {NODE: step})
    assert shown(history.last(NODE, 3, 4 * STEP_MS)) == [2, 3, 4]
    assert shown(history.last(NODE, 3, 5 * STEP_MS + 1)) == [3, 4, None]
    assert history.last(("node", "", "y"), 3, 0) is None


def test_steps_without_a_sample_are_gaps() -> None:
    history = History(0)
    history.put(1 * STEP_MS, {NODE: 1})
    history.put(4 * STEP_MS, {NODE: 4})
    assert shown(history.last(NODE, 5, 4 * STEP_MS)) == [None, 1, None, None, 4]


def test_a_full_ring_has_no_sample_of_the_hour_before() -> None:
    history = History(0)
    for step in range(1, SAMPLES + 3):
        history.put(step * STEP_MS, {NODE: step} if step < 4 or step > SAMPLES else {})
    values = shown(history.last(NODE, SAMPLES, (SAMPLES + 2) * STEP_MS))
    assert (values[0], values[1], values[-1]) == (3, None, SAMPLES + 2)
    assert history.samples == SAMPLES


def test_a_series_without_values_for_an_hour_is_dropped_and_their_number_is_bounded() -> None:
    history = History(0)
    history.put(STEP_MS, {("topic", str(number), "x"): 1.0 for number in range(SERIES_MAX + 5)})
    assert history.last(("topic", str(SERIES_MAX), "x"), 1, STEP_MS) is None
    history.put((SAMPLES + 1) * STEP_MS, {NODE: 1.0})
    assert history.last(("topic", "0", "x"), 1, (SAMPLES + 1) * STEP_MS) is None


def test_processes_are_merged_without_those_that_have_no_sample() -> None:
    assert merge([[1, nan], [2, nan]], "sum")[0] == 3
    assert isnan(merge([[1, nan], [2, nan]], "sum")[1])
    assert merge([[nan], [2], [7]], "max") == [7]


def test_a_percentile_lies_between_the_bounds_of_its_bucket() -> None:
    assert percentile((1.0, 2.0), [0, 100, 100], 0.5) == 1.5
    assert isnan(percentile((1.0,), [0, 0], 0.99))
    assert percentile((1.0,), [0, 10], 0.99) == 1.0
