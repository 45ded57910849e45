"""How many partitions a topic has, asked once: a topic's partitions do not change."""

from __future__ import annotations

import asyncio

from client import api
from client.attempts import Attempts


class TopicPartitions:
    def __init__(self, attempts: Attempts, give_up_ms: int) -> None:
        self._attempts = attempts
        self._give_up_ms = give_up_ms
        self._counts: dict[str, int] = {}
        self._asking: dict[str, asyncio.Task[int]] = {}

    def known(self, topic: str) -> int:
        """The number of partitions, or 0 when nobody has asked yet."""
        return self._counts.get(topic, 0)

    async def learn(self, topic: str) -> int:
        """Ask the node; many callers at once ask it once. Raises ProblemError when there is no such topic."""
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.get_running_loop().create_task(self._ask(topic))
            task.add_done_callback(lambda done: self._finish(topic, done))
        return await asyncio.shield(task)

    def _finish(self, topic: str, task: asyncio.Task[int]) -> None:
        del self._asking[topic]
        if not task.cancelled():
            task.exception()  # looked at here, because all who asked may have been cancelled meanwhile

    async def _ask(self, topic: str) -> int:
        answer = await self._attempts.ask(api.describe_topic(topic), self._give_up_ms)
        count = len(answer.json()["partitions"])
        assert count > 0
        self._counts[topic] = count
        return count
