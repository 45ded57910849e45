from hypothesis import given
from hypothesis import strategies as st

from loadtests.generators.percentiles import latency_of, median, percentile


def test_a_percentile_is_the_smallest_sample_that_covers_its_share():
    hundred = list(range(1, 101))
    assert percentile(hundred, 50) == 50
    assert percentile(hundred, 99) == 99
    assert percentile(list(range(1, 1001)), 99.9) == 999


def test_a_percentile_without_a_sample_above_it_is_not_reported():
    assert percentile([], 50) is None
    assert percentile([7], 50) is None
    assert percentile(list(range(99)), 99) is None
    assert percentile(list(range(999)), 99.9) is None


@given(st.lists(st.integers(0, 10**9), min_size=1), st.sampled_from([50, 75, 95, 99, 99.9, 99.99]))
def test_a_percentile_is_a_sample_that_as_many_as_it_says_do_not_exceed(samples, percent):
    ascending = sorted(samples)
    value = percentile(ascending, percent)
    if value is None:
        assert len(ascending) * (100 - percent) / 100 < 1
        return
    covered = sum(sample <= value for sample in ascending)
    below = sum(sample < value for sample in ascending)
    assert value in samples
    assert covered / len(ascending) >= percent / 100 - 1e-9
    assert below / len(ascending) < percent / 100


def test_latency_is_in_milliseconds_and_takes_any_order():
    latency = latency_of([3000, 1000, 2000, 4000])
    assert (latency.count, latency.p50_ms, latency.p99_ms, latency.max_ms) == (4, 2.0, None, 4.0)


def test_no_samples_give_no_latency():
    latency = latency_of([])
    assert (latency.count, latency.p50_ms, latency.max_ms) == (0, None, None)


def test_the_median_of_two_is_between_them():
    assert median([4.0, 1.0, 2.0]) == 2.0
    assert median([1.0, 2.0]) == 1.5
