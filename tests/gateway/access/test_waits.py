"""Open waits end when a check fails, and at no other time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from engine.runtime.clock import SystemClock
from engine.runtime.pending import Pending
from gateway.access.access import Access
from gateway.access.tokens import Tokens
from gateway.access.waits import CHECKS_AT_ONCE, Waits
from gateway.http.problems import Problem
from gateway.http.response import Response
from gateway.http.rights import READ_TOPIC
from tests.gateway.requests import request_of


class Right:
    """A right that can end."""

    def __init__(self) -> None:
        self.has_ended = False

    def check(self) -> None:
        if self.has_ended:
            raise Problem("forbidden", "it has ended")


async def waiting(waits: Waits, check: Callable[[], None]) -> str:
    async with waits.ending(request_of(), check):
        await asyncio.sleep(30)
    return "not ended"


async def test_only_a_wait_whose_check_fails_ends() -> None:
    waits, rights = Waits(), [Right() for _ in range(3 * CHECKS_AT_ONCE)]
    tasks = [asyncio.create_task(waiting(waits, right.check)) for right in rights]
    await asyncio.sleep(0)
    rights[-1].has_ended = True
    waits.recheck_soon()
    with pytest.raises(Problem, match="it has ended"):
        await asyncio.wait_for(tasks[-1], 2)
    assert not any(task.done() for task in tasks[:-1])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert repr(waits) == "Waits(0)"


async def test_the_inner_of_two_blocks_of_a_request_ends() -> None:
    waits, right, request = Waits(), Right(), request_of()

    async def inner() -> None:
        async with waits.ending(request, right.check):
            await asyncio.sleep(30)

    async with asyncio.timeout(2), waits.ending(request, right.check):
        right.has_ended = True
        waits.recheck_soon()
        with pytest.raises(Problem):
            await inner()


async def test_a_change_during_the_checks_is_checked_too() -> None:
    waits, late = Waits(), Right()
    tasks = [asyncio.create_task(waiting(waits, late.check)) for _ in range(2 * CHECKS_AT_ONCE)]
    await asyncio.sleep(0)
    waits.recheck_soon()
    await asyncio.sleep(0)  # the first of them have been checked
    late.has_ended = True
    waits.recheck_soon()
    done, _ = await asyncio.wait(tasks, timeout=2)
    assert len(done) == len(tasks)
    for task in tasks:
        assert isinstance(task.exception(), Problem)


async def test_a_wait_whose_right_has_ended_before_it_does_not_begin() -> None:
    """The rules have changed between the check of the head and the wait."""
    waits, right = Waits(), Right()
    right.has_ended = True
    with pytest.raises(Problem, match="it has ended"):
        await asyncio.wait_for(waiting(waits, right.check), 2)
    assert repr(waits) == "Waits(0)"


@pytest.mark.parametrize("kind", ["a coroutine", "a pending one"])
async def test_what_a_handler_returned_is_ended_if_its_wait_does_not_begin(kind: str) -> None:
    access, request = Access(SystemClock(), Tokens(())), request_of(need=READ_TOPIC, names={"topic": "t"})
    request.route = request.route._replace(operation="fetch")

    async def rest() -> Response:
        raise AssertionError("it goes on without a right")

    coroutine, pending = rest(), Pending[Response]()
    with pytest.raises(Problem, match="unauthorized"):
        await access.guard(request, coroutine if kind == "a coroutine" else pending)
    assert coroutine.cr_frame is None if kind == "a coroutine" else pending.is_over
    coroutine.close()


async def test_a_timeout_within_a_wait_stays_one() -> None:
    waits = Waits()
    with pytest.raises(TimeoutError):
        async with waits.ending(request_of(), Right().check), asyncio.timeout(0):
            await asyncio.sleep(30)
