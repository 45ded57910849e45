"""A change that is requested while the coordination store does not answer fails with an error after a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from replication.cluster.store_calls import StoreTimeout, with_store_timeout
from replication.coordination.interface import CommitUnknown, Session, SessionLost, State

SILENT_S = 0.05
LONG_S = 30.0


class Told:
    """A scripted session state; records whether a call was made."""

    def __init__(self, state: State = State.CONNECTED) -> None:
        self.state = state
        self.begun = asyncio.Event()
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()

    def become(self, state: State) -> None:
        self.state = state
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_state(self, seen: State) -> State:
        while self.state is seen:
            await self._changed.wait()
        return self.state

    async def work(self) -> str:
        self.begun.set()
        return await self.answer

    def asked(self, silent_s: float = SILENT_S, **how: Any) -> Coroutine[Any, Any, str]:
        return with_store_timeout(cast(Session, self), self.work, silent_s=silent_s, **how)


async def test_nothing_is_begun_while_nobody_answers_and_that_is_said():
    session = Told(State.SUSPENDED)
    with pytest.raises(StoreTimeout) as refused:
        async with asyncio.timeout(LONG_S):
            await session.asked()
    assert not session.begun.is_set()
    assert refused.value.no_side_effects
    assert refused.value.retryable


async def test_of_what_was_begun_before_the_store_fell_silent_nobody_knows():
    session = Told()
    asking = asyncio.create_task(session.asked())
    await session.begun.wait()
    session.become(State.SUSPENDED)
    with pytest.raises(CommitUnknown) as refused:
        async with asyncio.timeout(LONG_S):
            await asking
    assert not refused.value.no_side_effects
    assert session.answer.cancelled()


async def test_a_question_that_changes_nothing_has_done_nothing():
    session = Told()
    asking = asyncio.create_task(session.asked(changes=False))
    await session.begun.wait()
    session.become(State.SUSPENDED)
    with pytest.raises(StoreTimeout):
        async with asyncio.timeout(LONG_S):
            await asking


async def test_a_store_that_is_back_soon_is_a_pause():
    session = Told(State.SUSPENDED)
    asking = asyncio.create_task(session.asked(LONG_S))
    await asyncio.sleep(SILENT_S)
    assert not session.begun.is_set()
    session.become(State.CONNECTED)
    await session.begun.wait()
    session.become(State.SUSPENDED)
    await asyncio.sleep(SILENT_S)
    session.become(State.CONNECTED)
    session.answer.set_result("done")
    assert await asking == "done"


async def test_work_that_takes_long_is_left_to_work_while_the_store_answers():
    session = Told()
    asking = asyncio.create_task(session.asked(0.01))
    await asyncio.sleep(0.2)
    session.answer.set_result("done")
    assert await asking == "done"


@pytest.mark.parametrize("before", [State.CONNECTED, State.LOST])
async def test_that_the_session_is_over_the_work_itself_tells(before: State):
    session = Told(before)
    asking = asyncio.create_task(session.asked())
    await session.begun.wait()
    session.become(State.LOST)
    session.answer.set_exception(SessionLost("over"))
    with pytest.raises(SessionLost):
        await asking


async def test_who_gives_up_leaves_nobody_waiting():
    before, told = asyncio.all_tasks(), Told(State.SUSPENDED)
    asking = asyncio.create_task(told.asked(3600))
    await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.wait([asking])
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == before
