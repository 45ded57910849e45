"""Deadlines of one loop: never early, on one timer, and removed when a wait ends in time."""

import asyncio

import pytest

from engine.runtime.loop_waits import BUCKET_S, FAR_BUCKETS, FAR_S, SLICE, expire, loop_waits


async def test_a_deadline_is_never_early():
    loop = asyncio.get_running_loop()
    for wait_s in (0.0, 0.001, 0.0099, 0.01, 0.0101, 0.03):
        deadline = loop.time() + wait_s
        with pytest.raises(TimeoutError):
            await loop_waits().deadlines.wait_until(deadline, loop.create_future())
        assert loop.time() >= deadline


async def test_a_deadline_in_the_past_ends_what_is_not_done():
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        await loop_waits().deadlines.wait_until(loop.time() - 5, loop.create_future())
    done = loop.create_future()
    done.set_result(7)
    assert await loop_waits().deadlines.wait_until(loop.time() - 5, done) == 7


async def test_an_earlier_deadline_does_not_wait_for_a_later_one():
    loop, deadlines, passed = asyncio.get_running_loop(), loop_waits().deadlines, []
    last = loop.create_future()
    now = loop.time()
    deadlines.put(now + 0.05, last, lambda future: future.set_result(None))
    for wait_s in (0.02, 0.0, 0.04):
        deadlines.put(now + wait_s, wait_s, passed.append)
    await last
    assert passed == [0.0, 0.02, 0.04]
    assert len(deadlines) == 0


async def test_a_deadline_may_cancel_itself_and_others_of_its_bucket():
    loop, deadlines, passed = asyncio.get_running_loop(), loop_waits().deadlines, []
    last, bucket = loop.create_future(), {}

    def passes(name):
        passed.append(name)
        bucket["of"].pop(name, None)
        bucket["of"].pop("cancelled", None)

    now = loop.time()
    for name in ("first", "cancelled", "second"):
        bucket["of"] = deadlines.put(now, name, passes)
    deadlines.put(now + 0.02, last, lambda future: future.set_result(None))
    await last
    assert passed == ["first", "second"]
    assert len(deadlines) == 0


async def test_thousands_of_waits_that_end_in_time_set_one_timer():
    loop, deadlines = asyncio.get_running_loop(), loop_waits().deadlines
    deadline = loop.time() + 30
    for _ in range(5000):
        future = loop.create_future()
        bucket = deadlines.put(deadline, future, expire)
        assert bucket.pop(future) is not None
    assert len(deadlines) == 0
    assert deadlines.timers_set == 1


async def test_buckets_are_fine_near_by_and_coarse_far_away_and_never_end_early():
    loop, deadlines = asyncio.get_running_loop(), loop_waits().deadlines
    now = loop.time()
    for step in range(100):
        deadlines.put(now + 2 * FAR_S + step * BUCKET_S, step, print)
        deadlines.put(now + FAR_S / 2 + step * BUCKET_S, step, print)
    far = [tick for tick in deadlines._ticks if tick * BUCKET_S > now + FAR_S]
    near = [tick for tick in deadlines._ticks if tick not in far]
    assert len(far) <= 100 // FAR_BUCKETS + 1
    assert 100 <= len(near) <= 101
    for tick in near + far:
        late_s = FAR_BUCKETS * BUCKET_S if tick in far else BUCKET_S
        for step in deadlines._buckets[tick]:
            deadline = now + (2 * FAR_S if tick in far else FAR_S / 2) + step * BUCKET_S
            assert deadline <= tick * BUCKET_S <= deadline + late_s + 1e-6


async def test_thousands_that_time_out_together_are_ended_in_slices():
    loop, ended_in_turn = asyncio.get_running_loop(), [0]
    deadline = loop.time()

    def ended(_: object) -> None:
        ended_in_turn[-1] += 1

    for number in range(10 * SLICE):
        loop_waits().deadlines.put(deadline, number, ended)
    while sum(ended_in_turn) < 10 * SLICE:
        ended_in_turn.append(0)
        await asyncio.sleep(0)
    assert max(ended_in_turn) <= 2 * SLICE  # the ring's turn may have a slice of its own
