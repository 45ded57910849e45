"""Looks for topics and partitions that another node has made and this one has not heard of, before a final 404.

Only in a cluster. An answer comes from a question to the coordination store that was sent after the request came, as
every refusal that is final (docs/decisions/0015). The store is asked once for all who ask for a name meanwhile, and for
one name a bounded number of times a second.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from engine.errors import InvalidTopicName
from engine.topics import check_topic_name
from replication.confirming import Gathering

PAUSE_S = 0.01  # between two questions for a name
NAMES_MAX = 1000  # beyond it names are forgotten that nobody asks for now


class TopicFinder:
    """`ask` answers whether the cluster has the topic, and returns when this process has it too, as it is there."""

    def __init__(self, ask: Callable[[str], Awaitable[bool]]) -> None:
        self._ask = ask
        self._asking: dict[str, Gathering[str, bool]] = {}  # one for each name: a slow answer holds up no other
        self._names_max = NAMES_MAX

    def __repr__(self) -> str:
        return f"TopicFinder(names={len(self._asking)})"

    async def find(self, name: str) -> bool:
        """Raises what the asking raises: then nobody knows."""
        if not _may_be(name):
            return False
        if name not in self._asking:
            self._make_room()
            self._asking[name] = Gathering(self._answers, PAUSE_S)
        return bool(await self._asking[name].answer(name))

    async def _answers(self, names: Sequence[str]) -> dict[str, bool]:
        return {name: await self._ask(name) for name in names}

    def _make_room(self) -> None:
        if len(self._asking) >= self._names_max:
            self._asking = {name: one for name, one in self._asking.items() if not one.is_idle}
            self._names_max = max(NAMES_MAX, 2 * len(self._asking))


def _may_be(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True
