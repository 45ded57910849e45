"""Removes the files of deleted topics in the background, topic after topic, a few files at a time.

engine/directory/safe_delete.py and engine/directory/topic_directories.py decide which files, in which order. The topics
are unlisted already, durably; a stop ends between two steps, and the next start continues.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor

from engine.directory.safe_delete import STEPS_AT_ONCE, RemovalSteps, run_some_steps
from engine.runtime.tasks import BackgroundTasks


class TopicDeleter:
    """Continues removals that have begun."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._left: deque[RemovalSteps[None]] = deque()
        self._tasks = BackgroundTasks()
        self._is_running = False
        self._is_stopping = False

    def __repr__(self) -> str:
        return f"TopicDeleter({len(self._left)} left)"

    async def remove(self, removal: RemovalSteps[None]) -> None:
        """Removes a few files now, and the rest in the background."""
        if not await self._run_some_steps(removal):
            self.remove_in_background(removal)

    def remove_in_background(self, removal: RemovalSteps[None]) -> None:
        """Removes the rest in the background."""
        self._left.append(removal)
        if not self._is_running and not self._is_stopping:
            self._is_running = True
            self._tasks.keep(self._run, "removing files of deleted topics")

    async def stop(self) -> None:
        """Stops between two steps."""
        self._is_stopping = True
        await self._tasks.wait_ended()

    async def _run(self) -> None:
        while self._left and not self._is_stopping:
            if await self._run_some_steps(self._left[0]):
                self._left.popleft()
        self._is_running = False

    async def _run_some_steps(self, removal: RemovalSteps[None]) -> bool:
        return await asyncio.get_running_loop().run_in_executor(self._executor, run_some_steps, removal, STEPS_AT_ONCE)
