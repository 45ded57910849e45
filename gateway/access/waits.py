"""The open waits of a process: long polls, event streams and pushes, which end when their owners lose the right.

Rules change and tokens expire while a request waits. After each change, and when a token expires, every wait is checked
again, some of them in each turn of the loop. Polls without a task (gateway/server) are found by their connections, so
that they cost nothing here while they wait. Invariant: a wait that ends so has answered with the problem of the check.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Protocol

from engine.runtime.tasks import in_background
from gateway.http.problems import Problem
from gateway.http.request import Request

CHECKS_AT_ONCE = 200  # at most 2 µs each


class Wait(Protocol):
    """An open wait."""

    def recheck(self) -> None:
        """Ends the wait if its caller has lost the right to it. Raises nothing."""


class _TaskWait:
    """A wait of a task, which is interrupted."""

    def __init__(self, check: Callable[[], None]) -> None:
        self.check = check
        self.problem: Problem | None = None
        self.limit = asyncio.timeout(None)

    def recheck(self) -> None:
        try:
            self.check()
        except Problem as problem:
            if self.problem is None:
                self.problem = problem
                self.limit.reschedule(asyncio.get_running_loop().time())


class Waits:
    """All open waits: those of tasks, those that a server has, and the pushes."""

    def __init__(self) -> None:
        self._without_task: list[Callable[[], Iterable[Wait]]] = []
        self._of_tasks: dict[Request, _TaskWait] = {}
        self._checking: asyncio.Task[None] | None = None
        self._is_due = False

    def __repr__(self) -> str:
        return f"Waits({len(self._of_tasks)})"

    def include(self, without_task: Callable[[], Iterable[Wait]]) -> None:
        """Adds the waits that the function yields."""
        self._without_task.append(without_task)

    @asynccontextmanager
    async def ending(self, request: Request, check: Callable[[], None]) -> AsyncIterator[None]:
        """Ends the block once the check fails, also before it begins; the inner one, if they are nested.

        Raises the Problem of the check.
        """
        check()  # the rules may have changed since the head was checked
        wait, outer = _TaskWait(check), self._of_tasks.get(request)
        self._of_tasks[request] = wait
        try:
            async with wait.limit:
                yield
        except TimeoutError:
            if wait.problem is None:
                raise
            raise wait.problem from None
        finally:
            if outer is None:
                del self._of_tasks[request]
            else:
                self._of_tasks[request] = outer

    def recheck_soon(self) -> None:
        """Checks every open wait."""
        self._is_due = True
        if self._checking is None and any(True for _ in self._open()):
            self._checking = in_background(self._recheck(), "checking the rights of open polls")

    def _open(self) -> Iterator[Wait]:
        yield from self._of_tasks.values()
        for waits in self._without_task:
            yield from waits()

    async def _recheck(self) -> None:
        try:
            while self._is_due:
                self._is_due = False
                for number, wait in enumerate(list(self._open()), 1):
                    wait.recheck()
                    if number % CHECKS_AT_ONCE == 0:
                        await asyncio.sleep(0)
        finally:
            self._checking = None
