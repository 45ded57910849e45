"""A bucket never gives more than its rate, its burst and one last debit, and says truly how long a debt lasts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.quotas.bucket import LOW, Bucket

STEPS = st.lists(st.tuples(st.floats(0, 3), st.floats(0.1, 50)), max_size=60)


@given(STEPS, st.floats(0.5, 1000), st.floats(0.1, 5))
def test_what_is_taken_without_a_debt_is_bounded_in_every_interval(steps, rate, burst_s):
    bucket, now = Bucket(rate, burst_s), 100.0
    taken: list[tuple[float, float]] = []
    for pause, units in steps:
        now += pause
        if bucket.wait_s(now) == 0:
            bucket.debit(units, now)
            taken.append((now, units))
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            before_the_last = sum(units for _, units in taken[first:last])
            assert before_the_last <= rate * (taken[last][0] - taken[first][0] + burst_s) * (1 + 1e-6) + 1e-6


@given(STEPS, st.floats(0.5, 1000))
def test_after_the_wait_there_is_no_debt_and_before_it_there_is(steps, rate):
    bucket, now = Bucket(rate), 5.0
    for pause, units in steps:
        now += pause
        bucket.debit(units, now)
    wait_s = bucket.wait_s(now)
    assert bucket.wait_s(now + wait_s) == pytest.approx(0, abs=1e-6)
    if wait_s > 1e-3:
        assert bucket.wait_s(now + wait_s / 2) > 0
        assert bucket.balance(now) == pytest.approx(-wait_s * rate, rel=1e-6)


def test_an_unused_bucket_has_its_burst_and_no_more():
    bucket = Bucket(10, 2)
    assert bucket.balance(0) == pytest.approx(20)
    assert bucket.balance(1e6) == pytest.approx(20)
    assert bucket.full_in_s(0) == 0
    bucket.debit(20, 1e6)
    assert bucket.balance(1e6) == pytest.approx(0)
    assert (bucket.wait_s(1e6), bucket.full_in_s(1e6)) == (pytest.approx(0), pytest.approx(2))


def test_it_is_low_below_a_fifth():
    bucket = Bucket(100)
    bucket.debit(100 * (1 - LOW) - 1, 0)
    assert bucket.low_at < 0
    bucket.debit(2, 0)
    assert bucket.low_at > 0


def test_units_that_come_back_are_there_again():
    bucket = Bucket(10)
    bucket.debit(100, 0)
    bucket.credit(100)
    assert bucket.balance(0) == pytest.approx(10)


@pytest.mark.parametrize(("used", "rate", "expected"), [(0, 5, 5), (0, 20, 10), (30, 5, -20), (30, 40, -20)])
def test_another_rate_leaves_a_debt_as_it_is_and_never_adds_to_a_balance(used, rate, expected):
    bucket = Bucket(10)
    bucket.debit(used, 0)
    bucket.change_rate(rate, 0)
    assert bucket.balance(0) == pytest.approx(expected)
    assert bucket.balance(1000) == pytest.approx(rate)
