from hypothesis import given
from hypothesis import strategies as st

from loadtests.generators.percentiles import latency_of, median, percentile


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
