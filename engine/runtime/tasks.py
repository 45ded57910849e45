"""Background tasks: the only place in engine, replication and gateway that starts asyncio tasks.

An exception that ends a task is a bug or an unforeseen fault. It is logged, counted by `failures`, and reported to
`on_failed`; a task of `keep_running` is started again. Expected errors are not handled here: a task handles its own.
Invariants: a running task is referenced until it ends, since the event loop itself holds only weak references; a
cancellation without a request counts as a failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar, overload

from engine.errors import EngineError

RESTART_S, RESTART_S_MAX = 0.1, 30.0  # doubles between them, so that a task that always fails costs next to nothing
STEADY_S = 60.0  # a task that has run for this long starts again with the first pause

T = TypeVar("T")

log = logging.getLogger("penstock.background")

failures: Counter[str] = Counter()  # of this process, by the work of the tasks
_running: set[asyncio.Task[Any]] = set()


def in_background(
    work: Coroutine[Any, Any, None], doing: str, on_failed: Callable[[], object] | None = None, *, of: str = ""
) -> asyncio.Task[None]:
    """Starts a task. If an exception ends it, log and count the exception and call `on_failed`.

    `doing` is a metric label: a constant. `of` names the object in the log.
    """
    task = asyncio.create_task(work)
    _running.add(task)
    task.add_done_callback(partial(_on_ended, doing, of, on_failed))
    return task


def keep_running(work: Callable[[], Coroutine[Any, Any, None]], doing: str, *, of: str = "") -> asyncio.Task[None]:
    """Starts a task that runs `work()`, and runs it again after a pause whenever an exception ends it.

    Ends when `work` returns or when the task is cancelled.
    """
    failures.setdefault(doing, 0)  # a counter that begins at 0 shows its first increase
    return in_background(_run_until_done(work, doing, of), doing, of=of)


@overload
def start_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]: ...
@overload
def start_task(work: Awaitable[T]) -> asyncio.Future[T]: ...
def start_task(work: Awaitable[T]) -> asyncio.Future[T]:
    """Starts a task whose result its creator awaits: its exception is raised there, and is not logged here."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_retrieve_exception)
    return task


def start_handler(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Starts a task whose work raises nothing. Its creator keeps a reference.

    Each request has one. It costs half of `start_task`, which looks up the loop and retrieves an exception.
    """
    return loop.create_task(work)


class BackgroundTasks:
    """The background tasks of one owner, which waits for them or cancels them when it stops."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"BackgroundTasks({len(self._tasks)})"

    def start(
        self,
        work: Coroutine[Any, Any, None],
        doing: str,
        on_failed: Callable[[], object] | None = None,
        *,
        of: str = "",
    ) -> asyncio.Task[None]:
        """Starts a task as `in_background` does."""
        return self._register(in_background(work, doing, on_failed, of=of))

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]], doing: str, *, of: str = "") -> asyncio.Task[None]:
        """Starts a task as `keep_running` does."""
        return self._register(keep_running(work, doing, of=of))

    async def finish(self, work: Coroutine[Any, Any, T], doing: str) -> T:
        """Run `work` to its end and return its result. A cancel ends the wait, not the work.

        A failure after a cancel is logged and counted, since the task has no waiter left.
        """
        task = self._register(asyncio.create_task(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(partial(_on_ended, doing, "", None))
            raise

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def wait_ended(self) -> None:
        """Waits for all tasks; their failures are reported where they occur."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _register(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def warn_of(what: str, error: Exception) -> None:
    """Log a failure that will be retried; include the stack trace only if the error is of an unexpected kind."""
    log.warning(what, extra={"reason": str(error) or repr(error)}, exc_info=None if _is_expected(error) else error)


def log_failure(doing: str, error: BaseException, *, of: str = "", **extra: object) -> None:
    """Log and count a failure of background work."""
    failures[doing] += 1
    fields = {"doing": doing, **({"of": of} if of else {}), "reason": repr(error), **extra}
    log.error("background task failed", extra=fields, exc_info=None if _is_expected(error) else error)


async def _run_until_done(work: Callable[[], Coroutine[Any, Any, None]], doing: str, of: str) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    pause_s = RESTART_S
    while True:
        began = loop.time()
        try:
            await work()
            return
        except asyncio.CancelledError as error:
            if task.cancelling():
                raise
            failure: BaseException = error
        except Exception as error:
            failure = error
        if loop.time() - began >= STEADY_S:
            pause_s = RESTART_S
        log_failure(doing, failure, of=of, restart_in_s=pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, RESTART_S_MAX)


def _on_ended(doing: str, of: str, on_failed: Callable[[], object] | None, task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if (failure := _failure_of(task)) is None:
        return
    log_failure(doing, failure, of=of)
    if on_failed is not None:
        on_failed()


def _failure_of(task: asyncio.Task[Any]) -> BaseException | None:
    if not task.cancelled():
        return task.exception()
    return None if task.cancelling() else asyncio.CancelledError("cancelled from within")


def _retrieve_exception(task: asyncio.Future[Any]) -> None:
    """An exception that was never looked at is a warning of asyncio's, when the awaiting side has left."""
    if not task.cancelled():
        task.exception()


def _is_expected(error: BaseException) -> bool:
    return isinstance(error, EngineError | OSError)
