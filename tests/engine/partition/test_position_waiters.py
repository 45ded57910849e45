"""Waits for a position: woken in order when it is passed, and ended when it cannot be reached."""

import asyncio

import pytest

from engine.partition.high_watermark import EMPTY_MAX, PositionWaiters
from engine.runtime.loop_waits import SLICE, loop_waits


async def test_a_wait_is_done_once_everything_below_its_end_is_passed():
    waiters = PositionWaiters(5)
    at_once, later, last = waiters.wait_for(5), waiters.wait_for(7), waiters.wait_for(9)
    assert (at_once.done(), later.done()) == (True, False)
    waiters.advance(8)
    assert later.result() == 8
    assert not last.done()
    assert len(waiters) == 1


async def test_waits_end_in_the_order_of_what_they_wait_for():
    waiters, ended = PositionWaiters(0), []
    for end in (3, 1, 2, 1):
        future = waiters.wait_for(end)
        future.add_done_callback(lambda _, end=end: ended.append(end))
    waiters.advance(3)
    await asyncio.sleep(0)
    assert ended == [1, 1, 2, 3]


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
    task = asyncio.create_task(waiters.wait_until(asyncio.get_running_loop().time() + 100, 1))
    await asyncio.sleep(0)
    assert (len(waiters), len(loop_waits().deadlines)) == (1, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (len(waiters), len(loop_waits().deadlines)) == (0, 0)


async def test_a_wait_that_is_given_up_after_it_was_woken_changes_nothing():
    waiters = PositionWaiters(0)
    woken, other = waiters.wait_for(1), waiters.wait_for(2)
    waiters.advance(1)
    waiters.give_up(1, woken)
    waiters.give_up(2, asyncio.get_running_loop().create_future())
    assert len(waiters) == 1
    waiters.give_up(2, other)
    waiters.give_up(2, other)
    assert len(waiters) == 0


async def test_ends_whose_waits_were_all_given_up_take_no_room():
    waiters = PositionWaiters(0)
    kept = waiters.wait_for(10 * EMPTY_MAX)
    for end in range(1, 10 * EMPTY_MAX):
        waiters.give_up(end, waiters.wait_for(end))
    assert len(waiters._ends) <= EMPTY_MAX + 2
    waiters.advance(10 * EMPTY_MAX)
    assert kept.result() == 10 * EMPTY_MAX
    assert (waiters._ends, waiters._by_end, waiters._empty, len(waiters)) == ([], {}, 0, 0)


async def test_the_same_end_waited_for_again_and_again_takes_no_room():
    waiters = PositionWaiters(0)
    for _ in range(10 * EMPTY_MAX):
        waiters.give_up(1, waiters.wait_for(1))
    assert (len(waiters._ends), len(waiters._by_end), waiters._empty) == (1, 1, 1)


async def test_thousands_that_are_reached_at_once_are_woken_in_slices():
    waiters = PositionWaiters(0)
    futures = [waiters.wait_for(1) for _ in range(10 * SLICE)]
    waiters.advance(1)
    assert len(waiters) == 0
    turns = [sum(future.done() for future in futures)]
    while turns[-1] < len(futures):
        await asyncio.sleep(0)
        turns.append(sum(future.done() for future in futures))
    assert max(b - a for a, b in zip([0, *turns], turns, strict=False)) <= SLICE
    assert [future.result() for future in futures] == [1] * len(futures)


async def test_a_reached_position_is_reported_although_a_failure_comes_before_its_slice():
    waiters = PositionWaiters(0)
    futures = [waiters.wait_for(1) for _ in range(2 * SLICE)]
    later = waiters.wait_for(2)
    waiters.advance(1)
    waiters.fail(ValueError("gone"))
    assert await asyncio.gather(*futures) == [1] * len(futures)
    with pytest.raises(ValueError, match="gone"):
        await later
