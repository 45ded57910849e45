"""Waits for a position: woken when it is passed, in order, and never left to hang when it cannot come."""

from __future__ import annotations

import asyncio

import pytest

from engine.waiters import PositionWaiters


async def test_a_wait_is_done_once_everything_below_its_end_is_passed():
    waiters = PositionWaiters(5)
    at_once, later, last = waiters.wait_for(5), waiters.wait_for(7), waiters.wait_for(9)
    assert (at_once.done(), later.done()) == (True, False)
    waiters.advance(8)
    assert later.result() == 8
    assert not last.done()
    assert len(waiters) == 1


async def test_a_failure_ends_the_waits_that_are_there_and_those_that_come():
    waiters = PositionWaiters(5)
    before = waiters.wait_for(6)
    waiters.fail(ValueError("gone"))
    after = waiters.wait_for(6)
    for future in (before, after):
        with pytest.raises(ValueError, match="gone"):
            await future
    assert await waiters.wait_for(5) == 5


async def test_a_cancelled_wait_is_forgotten():
    waiters = PositionWaiters(0)
    future = waiters.wait_for(1)
    future.cancel()
    await asyncio.sleep(0)
    assert len(waiters) == 0
