"""A result that comes later reaches one receiver, and a coroutine that none takes is closed."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from engine.runtime.pending import Pending


def cancelled_before(pending: Pending[Any], rest: Coroutine[Any, Any, None]) -> None:
    pending.then(lambda outcome: None)
    pending.cancel()
    pending.complete(rest)


def cancelled_after(pending: Pending[Any], rest: Coroutine[Any, Any, None]) -> None:
    pending.complete(rest)
    pending.cancel()


def completed_twice(pending: Pending[Any], rest: Coroutine[Any, Any, None]) -> None:
    pending.complete(None)
    pending.complete(rest)


@pytest.mark.parametrize("how", [cancelled_before, cancelled_after, completed_twice])
def test_a_coroutine_whose_receiver_has_left_is_closed(
    how: Callable[[Pending[Any], Coroutine[Any, Any, None]], None],
) -> None:
    async def rest() -> None:
        raise AssertionError("it goes on for a client that has left")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coroutine = rest()
        how(Pending(), coroutine)
        assert coroutine.cr_frame is None, "it is closed"
        del coroutine
        gc.collect()


async def test_a_task_that_was_cancelled_closes_the_coroutine_too() -> None:
    pending: Pending[Any] = Pending()

    async def rest() -> None:
        raise AssertionError("it goes on for a client that has left")

    async def receive() -> None:
        await pending

    task = asyncio.create_task(receive())
    await asyncio.sleep(0)
    coroutine = rest()
    task.cancel()
    pending.complete(coroutine)  # before the task has ended
    with pytest.raises(asyncio.CancelledError):
        await task
    assert coroutine.cr_frame is None


def test_a_coroutine_that_waits_for_its_receiver_stays_open() -> None:
    async def rest() -> int:
        return 1

    pending: Pending[Any] = Pending()
    coroutine = rest()
    pending.complete(coroutine)
    taken: list[Any] = []
    pending.then(taken.append)
    assert taken == [coroutine]
    assert asyncio.run(coroutine) == 1
