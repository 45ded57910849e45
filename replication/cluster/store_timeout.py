"""How long somebody who asks waits for a coordination store that does not answer; then he is told, and what to do.

Not for what a node does of itself: that waits for as long as it takes, and goes on when the store is back.
What must hold: a refusal is definite only when nothing was begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from engine.errors import EngineError
from engine.runtime.tasks import start_task
from replication.coordination.interface import Session, State, Unsure

SILENT_S = 8.0  # ZooKeeper elects a leader of its own in less, and clients wait 30 s for an answer

Result = TypeVar("Result")


class StoreTimeout(EngineError):
    """The coordination store cannot be asked now. Nothing was begun; try again once it answers."""

    code = "overloaded"
    retryable = True


async def while_answered(
    session: Session, work: Callable[[], Awaitable[Result]], *, changes: bool = True, silent_s: float = SILENT_S
) -> Result:
    """What the work gives. Raises StoreTimeout when it was not begun, or changes nothing; else Unsure."""
    silence = start_task(_silence(session, silent_s))
    connected = start_task(_until_not_suspended(session))
    working: asyncio.Future[Result] | None = None
    try:
        await asyncio.wait([connected, silence], return_when=asyncio.FIRST_COMPLETED)
        if not silence.done():
            working = start_task(work())
            both: list[asyncio.Future[Any]] = [working, silence]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
    finally:
        for task in (silence, connected, working):
            if task is not None:
                task.cancel()
    text = f"the coordination store has not answered for {silent_s:g} s"
    if working is None or not changes:
        raise StoreTimeout(text, hint="check ZooKeeper, and try again")
    raise Unsure(f"{text}; whether it was done is not known", hint="check ZooKeeper, look, and try again")


async def _until_not_suspended(session: Session) -> None:
    while session.state is State.SUSPENDED:
        await session.wait_for_state(State.SUSPENDED)


async def _silence(session: Session, silent_s: float) -> None:
    """Returns when nobody has answered for so long. Of a session that is lost the work itself is told."""
    while True:
        if session.state is State.CONNECTED:
            await session.wait_for_state(State.CONNECTED)
            continue
        if session.state is State.LOST:
            await asyncio.Event().wait()
        try:
            async with asyncio.timeout(silent_s):
                await _until_not_suspended(session)
        except TimeoutError:
            return
