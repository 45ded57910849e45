"""Tasks that nobody waits for, and sessions that are given up: what goes wrong there is told, for nobody else would.

Not where errors that are expected are handled: a task does that itself. What ends it all the same is a bug, or a fault
that nobody thought of.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from engine.errors import EngineError
from replication.coordination.interface import Session

log = logging.getLogger("penstock.cluster")


def in_background(
    work: Coroutine[Any, Any, None], doing: str, when_failed: Callable[[], None] | None = None
) -> asyncio.Task[None]:
    """A task. Should it end by an exception, that is logged, and `when_failed` is called."""

    def ended(task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("a task has ended that must not", extra={"doing": doing, "reason": repr(error)}, exc_info=error)
        if when_failed is not None:
            when_failed()

    task = asyncio.create_task(work)
    task.add_done_callback(ended)
    return task


async def given_up(session: Session) -> None:
    """Close it. One that cannot say so in the store ends there by its timeout, or when its node registers anew."""
    try:
        await session.close()
    except (EngineError, OSError) as error:
        warn_of("a session was not closed", error)


def warn_of(what: str, error: Exception) -> None:
    """What will be tried again. Of a fault that nobody thought of there is the place, too."""
    is_expected = isinstance(error, EngineError | OSError)
    log.warning(what, extra={"reason": str(error) or repr(error)}, exc_info=None if is_expected else error)
