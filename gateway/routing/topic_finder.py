"""Looks for topics and partitions that another node has made and this one has not heard of, before a final 404.

Only in a cluster. An answer comes from a question to the coordination store that was sent after the request came, as
every refusal that is final (docs/decisions/0015). The store is asked once for all who ask for a name meanwhile, and for
one name a bounded number of times a second; names that strangers think up are bounded too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from engine.directory.topics import check_topic_name
from engine.errors import InvalidTopicName
from gateway.http.problems import Problem
from replication.cluster.leadership_check import Gathering

PAUSE_S = 0.01  # between two questions for a name
QUESTIONS_MAX = 32  # at once, each for another name: the store has other work
NAMES_MAX = 1000  # that are waited for: beyond it whoever asks for another is told to come back


class TopicFinder:
    """`ask` answers whether the cluster has the topic, and returns when this process has it too, as it is there."""

    def __init__(self, ask: Callable[[str], Awaitable[bool]]) -> None:
        self._ask = ask
        self._asking: dict[str, Gathering[str, bool]] = {}  # one for each name: a slow answer holds up no other
        self._turns = asyncio.Semaphore(QUESTIONS_MAX)

    def __repr__(self) -> str:
        return f"TopicFinder(names={len(self._asking)})"

    async def find(self, name: str) -> bool:
        """Raises what the asking raises, and Problem overloaded: then nobody knows."""
        if not _may_be(name):
            return False
        if name not in self._asking:
            self._make_room()
            self._asking[name] = Gathering(self._answers, PAUSE_S)
        return bool(await self._asking[name].answer(name))

    async def _answers(self, names: Sequence[str]) -> dict[str, bool]:
        async with self._turns:
            return {name: await self._ask(name) for name in names}

    def _make_room(self) -> None:
        """The oldest name that nobody asks for now is forgotten."""
        if len(self._asking) < NAMES_MAX:
            return
        idle = next((name for name, one in self._asking.items() if one.is_idle), None)
        if idle is None:
            raise Problem("overloaded", "too many topics are looked for that this node does not know")
        del self._asking[idle]


def _may_be(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True
