"""One caller of a key has the turn at a time, and no turn is lost."""

from __future__ import annotations

import asyncio

from gateway.connections.single_waiter import SingleWaiters

LONG_S = 60


async def test_the_turn_passes_in_the_order_of_the_callers() -> None:
    waiters, order = SingleWaiters(), []

    async def take(name: int) -> None:
        with waiters.caller("key") as turn:
            assert await turn.begin(LONG_S)
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(take(name) for name in range(5)))
    assert order == [0, 1, 2, 3, 4]
    assert repr(waiters) == "SingleWaiters(0 keys, 0 callers)"


async def test_callers_of_other_keys_do_not_wait() -> None:
    waiters = SingleWaiters()
    with waiters.caller("a") as one, waiters.caller("b") as other:
        assert await one.begin(LONG_S)
        assert await other.begin(LONG_S)


async def test_a_caller_whose_time_is_over_or_who_leaves_keeps_nobody_waiting() -> None:
    waiters = SingleWaiters()
    with waiters.caller("key") as first, waiters.caller("key") as late, waiters.caller("key") as last:
        assert await first.begin(LONG_S)
        assert not await late.begin(0)
        leaving = asyncio.ensure_future(late.begin(LONG_S))
        waiting = asyncio.ensure_future(last.begin(LONG_S))
        await asyncio.sleep(0)
        first.end()
        leaving.cancel()
        assert await waiting
        assert [first.has_turn, late.has_turn, last.has_turn] == [False, False, True]
