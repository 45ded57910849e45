"""The interface to the generators: h2load for closed loops where it is installed, and a process of the bench for the
rest.

A generator never shares a process with the measuring code or the measured server.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, TypeVar

import uvloop

from loadtests.generators import h2load
from loadtests.generators.closed_loop import run_closed_loop
from loadtests.generators.http1 import Headers, connector, request_bytes
from loadtests.generators.load import GeneratorFailed, Load, Outcome
from loadtests.generators.open_loop import OpenLoop, OpenOutcome, Schedule

T = TypeVar("T")


class Generators:
    """Runs one load at a time and blocks until it is over."""

    def __init__(self, *, use_h2load: bool) -> None:
        self._uses_h2load = use_h2load
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that the bench's threads hold
        self._pool = ProcessPoolExecutor(max_workers=1, mp_context=context)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run_closed(self, load: Load, timeout_s: float) -> Outcome:
        if self._uses_h2load:
            return h2load.run(load, timeout_s)
        return self.in_child(timeout_s, partial(run_closed_loop, load))

    def run_open(
        self, url: str, host: str, target: str, body: bytes, schedule: Schedule, headers: Headers = ()
    ) -> OpenOutcome:
        request = request_bytes("POST", host, target, body, headers)
        timeout_s = schedule.offset_s(schedule.count) + 30
        return self.in_child(timeout_s, partial(_run_open_loop, url, request, schedule))

    def in_child(self, timeout_s: float, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine function, which is pickled, in the generator's process. Raises GeneratorFailed."""
        return self._pool.submit(_run, timeout_s, work).result()


def _run(timeout_s: float, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs the work in the child on its own loop, with a timeout."""

    async def run_bounded() -> T:
        _end_at_first_error()
        async with asyncio.timeout(timeout_s):
            return await work()

    try:
        result: T = uvloop.run(run_bounded())
    except TimeoutError:
        raise GeneratorFailed(f"the load was not over after {timeout_s:.0f} s") from None
    except asyncio.CancelledError:
        raise GeneratorFailed("the generator has a fault, see above") from None
    return result


def _end_at_first_error() -> None:
    """Ends the load after an error in a callback, which is a bug in the generator: the load would otherwise never
    finish.
    """
    task = asyncio.current_task()
    assert task is not None

    def end(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        loop.set_exception_handler(lambda *_: None)
        task.cancel()

    asyncio.get_running_loop().set_exception_handler(end)


async def _run_open_loop(url: str, request: bytes, schedule: Schedule) -> OpenOutcome:
    return await OpenLoop(connector(url), schedule, lambda _: request).run()
