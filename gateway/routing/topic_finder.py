"""Looks for topics and partitions that another node has created and this one does not know, before a final 404.

An answer comes from a read of the coordination store that began after the request arrived, as for
every final rejection (docs/decisions/0015). Requests for one name share a read, and reads for one name are limited per
second; the number of unknown names is bounded too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from engine.directory.topics import check_topic_name
from engine.errors import InvalidTopicName
from gateway.http.problems import Problem
from replication.cluster.store_calls import Coalescer

PAUSE_S = 0.01  # between two reads for a name
LOOKUPS_MAX = 32  # at once, each for another name: the store has other work
NAMES_MAX = 1000  # with a pending read: beyond it, a request for another name has to retry


class Finder(Protocol):
    async def find(self, name: str) -> bool:
        """Returns whether another node has the topic, once this process has it too."""


class AllTopicsKnown:
    """The finder of a standalone node, whose catalog has every topic. Implements Finder."""

    async def find(self, name: str) -> bool:
        return False


class TopicFinder:
    """Implements Finder. `ask` returns whether the cluster has the topic, once this process has it too."""

    def __init__(self, ask: Callable[[str], Awaitable[bool]]) -> None:
        self._ask = ask
        self._pending: dict[str, Coalescer[str, bool]] = {}  # one for each name: a slow answer holds up no other
        self._slots = asyncio.Semaphore(LOOKUPS_MAX)

    def __repr__(self) -> str:
        return f"TopicFinder(names={len(self._pending)})"

    async def find(self, name: str) -> bool:
        """Returns whether the cluster has the topic. Raises `ask`'s errors, and Problem overloaded."""
        if not _may_be(name):
            return False
        if name not in self._pending:
            self._evict_idle()
            self._pending[name] = Coalescer(self._ask_all, PAUSE_S)
        return bool(await self._pending[name].answer(name))

    async def _ask_all(self, names: Sequence[str]) -> dict[str, bool]:
        async with self._slots:
            return {name: await self._ask(name) for name in names}

    def _evict_idle(self) -> None:
        """Forgets the oldest name without a pending read. Raises Problem overloaded if there is none."""
        if len(self._pending) < NAMES_MAX:
            return
        idle = next((name for name, pending in self._pending.items() if pending.is_idle), None)
        if idle is None:
            raise Problem("overloaded", "too many topics are looked for that this node does not know")
        del self._pending[idle]


def _may_be(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True
