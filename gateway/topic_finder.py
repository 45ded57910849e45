"""Looks for topics that another node has made and this one has not heard of, before anybody is told that there is none.

Only in a cluster. What the coordination store is asked is bounded: once for all who ask for a name at the same time,
and a name that is not there is not asked for again for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.background import start_task
from engine.errors import InvalidTopicName
from engine.topics import check_topic_name

FORGET_S = 1.0
NAMES_MAX = 1000  # beyond it the oldest are asked for again


class TopicFinder:
    """`ask` answers whether the cluster has the topic, and returns when this process has it too."""

    def __init__(self, ask: Callable[[str], Awaitable[bool]], now: Callable[[], float]) -> None:
        self._ask = ask
        self._now = now
        self._missing: dict[str, float] = {}  # names, and until when they count as not there
        self._asking: dict[str, asyncio.Future[bool]] = {}

    def __repr__(self) -> str:
        return f"TopicFinder(asking={len(self._asking)}, missing={len(self._missing)})"

    async def find(self, name: str) -> bool:
        """Raises what the asking raises: then nobody knows."""
        if name not in self._asking:
            if self._missing.get(name, 0.0) > self._now() or not _may_be(name):
                return False
            asking = self._asking[name] = start_task(self._ask(name))
            asking.add_done_callback(lambda done: self._asked(name, done))
        return await asyncio.shield(self._asking[name])  # who leaves takes nothing from the others

    def _asked(self, name: str, done: asyncio.Future[bool]) -> None:
        del self._asking[name]
        if done.cancelled() or done.exception() is not None or done.result():
            return
        self._missing.pop(name, None)
        self._missing[name] = self._now() + FORGET_S
        if len(self._missing) > NAMES_MAX:
            del self._missing[next(iter(self._missing))]


def _may_be(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True
