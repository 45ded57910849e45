"""Many waits that end at once: reached, timed out, cancelled, drained, or ended by a loss of leadership.

Measures the processor time of the waiters themselves: the cost of a bare future and its task is measured too and
subtracted.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable

import pytest

from engine.partition.high_watermark import PositionWaiters
from engine.runtime.loop_waits import SLICE, loop_waits
from tests.scale.count import SCALE

WAITS = max(SCALE, 2000)  # with fewer the time is too short to measure
FUTURES_MAX = 3  # the allowed cost of a wait, in bare futures with their tasks
TRIES = 5  # the cheapest counts: other processes share the caches
FAR = 1e9

Finish = Callable[[PositionWaiters, list[asyncio.Task[None]]], object]


async def _wait(waiters: PositionWaiters, end: int, deadline: float) -> None:
    try:
        await waiters.wait_until(deadline, end)
    except (TimeoutError, RuntimeError, asyncio.CancelledError):
        return


async def _wait_bare(future: asyncio.Future[int]) -> None:
    try:
        await future
    except (TimeoutError, RuntimeError, asyncio.CancelledError):
        return


async def _cost(tasks: list[asyncio.Task[None]], finish: Callable[[], object]) -> float:
    """Return the processor time from the event that ends the waits until all have ended."""
    await asyncio.sleep(0)
    began = time.process_time()
    finish()
    await asyncio.wait(tasks)
    return time.process_time() - began


async def _cost_of_waits(count: int, ends: Callable[[int], int], finish: Finish, wait_s: float) -> float:
    waiters = PositionWaiters(0)
    deadline = asyncio.get_running_loop().time() + wait_s
    tasks = [asyncio.create_task(_wait(waiters, ends(number), deadline)) for number in range(count)]
    cost = await _cost(tasks, lambda: finish(waiters, tasks))
    assert (len(waiters), len(loop_waits().deadlines), len(loop_waits().polls)) == (0, 0, 0)
    return cost


async def _cost_of_futures(count: int, error: Exception | None, *, is_cancel: bool) -> float:
    futures: list[asyncio.Future[int]] = [asyncio.get_running_loop().create_future() for _ in range(count)]
    tasks = [asyncio.create_task(_wait_bare(future)) for future in futures]

    def finish() -> None:
        for future, task in zip(futures, tasks, strict=True):
            if is_cancel:
                task.cancel()
            elif error is None:
                future.set_result(1)
            else:
                future.set_exception(error)

    return await _cost(tasks, finish)


ENDINGS: dict[str, tuple[Finish, float, Exception | None]] = {
    "reached": (lambda waiters, _: waiters.advance(10**9), FAR, None),
    "timed out": (lambda waiters, _: None, 0.0, TimeoutError()),
    "cancelled": (lambda _, tasks: [task.cancel() for task in tasks], FAR, None),
    "drained": (lambda waiters, _: waiters.wake_all(), FAR, None),
    "leadership lost": (lambda waiters, _: waiters.fail_present(RuntimeError()), FAR, RuntimeError()),
}
ENDS: dict[str, Callable[[int], int]] = {
    "one end": lambda _: 1,
    "an end each": lambda number: 1 + number * 7919 % 1_000_003,  # in no order
}


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("ending", ENDINGS)
async def test_waits_that_end_at_once_cost_microseconds_each(ending, ends):
    finish, wait_s, error = ENDINGS[ending]
    waits_s, futures_s, gc_was_on = [], [], gc.isenabled()
    gc.freeze()  # so that the collections below find only what this test made
    gc.disable()
    try:
        for _ in range(TRIES):
            waits_s.append(await _cost_of_waits(WAITS, ENDS[ends], finish, wait_s))
            futures_s.append(await _cost_of_futures(WAITS, error, is_cancel=ending == "cancelled"))
            gc.collect()
    finally:
        if gc_was_on:
            gc.enable()
    waits_ms, futures_ms = 1000 * min(waits_s), 1000 * min(futures_s)
    sys.stderr.write(f"\n{WAITS} waits for {ends}, {ending}: {waits_ms:.1f} ms; bare futures {futures_ms:.1f} ms\n")
    assert waits_ms < FUTURES_MAX * futures_ms


async def test_polls_of_many_partitions_that_drain_at_once_are_woken_in_slices():
    woken_in_turn = [0]

    def woken(_: asyncio.Future[int]) -> None:
        woken_in_turn[-1] += 1

    partitions = [PositionWaiters(0) for _ in range(SCALE)]
    for waiters in partitions:
        waiters.wait_for(1).add_done_callback(woken)
    for waiters in partitions:
        waiters.wake_all()
    for _ in range(SCALE // SLICE + 3):
        woken_in_turn.append(0)
        await asyncio.sleep(0)
    assert sum(woken_in_turn) == SCALE
    assert max(woken_in_turn) <= 2 * SLICE


async def test_waits_with_a_deadline_each_share_a_timer():
    loop, deadlines = asyncio.get_running_loop(), loop_waits().deadlines
    waiters = PositionWaiters(0)
    now = loop.time()
    tasks = [asyncio.create_task(_wait(waiters, 1, now + 1000 + number / SCALE)) for number in range(SCALE)]
    await asyncio.sleep(0)
    assert (len(deadlines), deadlines.timers_set) == (SCALE, 1)
    waiters.advance(1)
    await asyncio.wait(tasks)
    assert len(deadlines) == 0
