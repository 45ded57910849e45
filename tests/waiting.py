"""Waits for what must come true, however slow the machine is: only what never comes fails, after LIMIT_S.

`pass_time` lets the running loop's clock jump, so that a timeout far longer than any pause of the machine ends at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LIMIT_S = 60.0  # under the limit of a test (`timeout` in pyproject.toml), so that the condition is what fails
PROCESSES_S = 300.0  # of what other processes do, on a machine that is busy with other tests
_STEP_S = 0.005


async def until(is_so: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Let other tasks run until the condition holds. Raises TimeoutError after the limit."""
    async with asyncio.timeout(limit_s):
        while not is_so():
            await asyncio.sleep(_STEP_S)


def wait_until(is_so: Callable[[], object], limit_s: float = PROCESSES_S) -> None:
    """Block until the condition holds, for what other threads and processes do. Raises TimeoutError after the limit."""
    deadline = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {limit_s:g} s")
        time.sleep(_STEP_S)


def pass_time(seconds: float) -> None:
    """Advance the running loop's clock: timers that are due by then fire in its next step."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]
