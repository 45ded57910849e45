"""The number of partitions of each topic. Asks at first use, and again at intervals, because a topic may grow."""

from __future__ import annotations

import asyncio

from penstock.admin import api
from penstock.transport.attempts import Attempts


class TopicPartitions:
    def __init__(self, attempts: Attempts, give_up_ms: int, age_ms_max: int) -> None:
        self._attempts = attempts
        self._give_up_ms = give_up_ms
        self._age_s_max = age_ms_max / 1000
        self._counts: dict[str, int] = {}
        self._fetched_at: dict[str, float] = {}  # loop time, seconds
        self._in_flight: dict[str, asyncio.Task[int]] = {}

    def cached_count(self, topic: str) -> int:
        """Returns the number of partitions, or 0 before the first answer."""
        return self._counts.get(topic, 0)

    def refresh_if_stale(self, topic: str, now: float) -> None:
        """Asks again in the background if the count is too old. The old count is used until an answer arrives."""
        if now - self._fetched_at.get(topic, now) > self._age_s_max:
            self._fetched_at[topic] = now
            self._start(topic)

    async def load(self, topic: str) -> int:
        """Asks the node; concurrent callers share one request. Raises ProblemError if the topic does not exist."""
        return await asyncio.shield(self._start(topic))

    def _start(self, topic: str) -> asyncio.Task[int]:
        task = self._in_flight.get(topic)
        if task is None:
            task = self._in_flight[topic] = asyncio.get_running_loop().create_task(self._fetch(topic))
            task.add_done_callback(lambda done: self._finish(topic, done))
        return task

    def _finish(self, topic: str, task: asyncio.Task[int]) -> None:
        del self._in_flight[topic]
        if not task.cancelled():
            task.exception()  # retrieved here, because all callers may have been cancelled meanwhile

    async def _fetch(self, topic: str) -> int:
        answer = await self._attempts.send_with_retries(api.describe_topic(topic), self._give_up_ms)
        count = len(answer.json()["partitions"])
        assert count > 0
        self._counts[topic] = count
        self._fetched_at[topic] = asyncio.get_running_loop().time()
        return count
