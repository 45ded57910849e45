"""A change that is requested while the coordination store does not answer fails with an error after a timeout."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from engine.runtime.clock import Clock
from replication.cluster.store_calls import SilenceWatch, StoreTimeout, with_store_timeout
from replication.coordination.interface import CommitUnknown, Session, SessionLost, State

SILENT_S = 0.05
LONG_S = 60.0


class ScriptedSession:
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

    def call(self, silent_s: float = SILENT_S, **how: Any) -> Coroutine[Any, Any, str]:
        return with_store_timeout(cast(Session, self), self.work, silent_s=silent_s, **how)


async def test_nothing_is_begun_while_nobody_answers_and_that_is_said():
    session = ScriptedSession(State.SUSPENDED)
    with pytest.raises(StoreTimeout) as refused:
        async with asyncio.timeout(LONG_S):
            await session.call()
    assert not session.begun.is_set()
    assert refused.value.no_side_effects
    assert refused.value.retryable


async def test_of_what_was_begun_before_the_store_fell_silent_nobody_knows():
    session = ScriptedSession()
    calling = asyncio.create_task(session.call())
    await session.begun.wait()
    session.become(State.SUSPENDED)
    with pytest.raises(CommitUnknown) as refused:
        async with asyncio.timeout(LONG_S):
            await calling
    assert not refused.value.no_side_effects
    assert session.answer.cancelled()


async def test_a_question_that_changes_nothing_has_done_nothing():
    session = ScriptedSession()
    calling = asyncio.create_task(session.call(changes=False))
    await session.begun.wait()
    session.become(State.SUSPENDED)
    with pytest.raises(StoreTimeout):
        async with asyncio.timeout(LONG_S):
            await calling


async def test_a_store_that_is_back_soon_is_a_pause():
    session = ScriptedSession(State.SUSPENDED)
    calling = asyncio.create_task(session.call(LONG_S))
    await asyncio.sleep(SILENT_S)
    assert not session.begun.is_set()
    session.become(State.CONNECTED)
    await session.begun.wait()
    session.become(State.SUSPENDED)
    await asyncio.sleep(SILENT_S)
    session.become(State.CONNECTED)
    session.answer.set_result("done")
    assert await calling == "done"


async def test_work_that_takes_long_is_left_to_work_while_the_store_answers():
    session = ScriptedSession()
    calling = asyncio.create_task(session.call(0.01))
    await asyncio.sleep(0.2)
    session.answer.set_result("done")
    assert await calling == "done"


@pytest.mark.parametrize("before", [State.CONNECTED, State.LOST])
async def test_the_end_of_a_session_is_raised_by_the_work_itself(before):
    session = ScriptedSession(before)
    calling = asyncio.create_task(session.call())
    await session.begun.wait()
    session.become(State.LOST)
    session.answer.set_exception(SessionLost("over"))
    with pytest.raises(SessionLost):
        await calling


async def test_who_gives_up_leaves_nobody_waiting():
    before, session = asyncio.all_tasks(), ScriptedSession(State.SUSPENDED)
    calling = asyncio.create_task(session.call(3600))
    await asyncio.sleep(0.01)
    calling.cancel()
    await asyncio.wait([calling])
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == before


class _Now:
    """A clock that a test sets."""

    now = 100.0

    def boottime(self) -> float:
        return self.now


def test_one_silence_is_one_warning_though_a_late_answer_comes_in_it(caplog):
    """Before: the answer to a request of 1.3 s ago ended a silence of 1.5 s, which was warned of again 0.2 s later."""
    caplog.set_level(logging.WARNING)
    clock = _Now()
    watch = SilenceWatch(1.5, cast(Clock, clock))
    watch.on_contact(100.0)
    pending, clock.now = 100.25, 101.5
    watch.check()
    clock.now = 101.55
    watch.on_contact(pending)
    clock.now = 101.75
    watch.check()
    assert [line.message[:34] for line in caplog.records] == ["the coordination store is silent: "]
    clock.now = 101.85
    watch.on_contact(101.8)
    watch.check()
    clock.now = 103.4
    watch.check()
    words = [line.message.removeprefix("the coordination store ")[:9] for line in caplog.records]
    assert words == ["is silent", "answers a", "is silent"], "the second silence has its own"
