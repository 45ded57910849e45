"""Work that must not be given up because too many files are open: it is tried again until files are free.

For what cannot be refused: opening the partitions of a node, and cutting a log once the cut has begun. Work that a
client asked for is refused with `TooManyOpenFiles` instead, so that the client decides when to try again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from engine.errors import TOO_MANY_FILES

T = TypeVar("T")

PAUSE_S = 0.1
WARN_EVERY = 50  # attempts: about five seconds

log = logging.getLogger("penstock.engine")


async def when_files_are_free(doing: str, work: Callable[[], Awaitable[T]]) -> T:
    """What `work` returns. `work` must be safe to begin again after EMFILE or ENFILE."""
    attempts = 0
    while True:
        try:
            return await work()
        except OSError as error:
            if error.errno not in TOO_MANY_FILES:
                raise
            if attempts % WARN_EVERY == 0:
                log.warning("too many open files, waiting", extra={"doing": doing, "reason": str(error)})
        attempts += 1
        await asyncio.sleep(PAUSE_S)
