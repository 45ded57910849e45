"""Retries work that fails because too many files are open, until files are free.

For work that cannot be rejected: opening the partitions of a node, and a truncation that has begun. Client requests
fail with `TooManyOpenFiles` instead, so that the client decides when to retry.
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


async def retry_until_files_free(doing: str, work: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of `work`, which must be safe to repeat after EMFILE or ENFILE."""
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
