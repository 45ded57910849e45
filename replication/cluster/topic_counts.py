"""How many topics and partitions an owner of names has: a counter that changes in the commit of its topics.

/tenants/<owner>   JSON: topics and partitions of the topics whose names begin with the owner and a dot

The first topic that is created under a ceiling makes the key, from a count of the topics that are there. From then on
every commit that makes, grows or deletes a topic of the owner has the counter, by compare-and-set: of two nodes that
create the last topic, one begins again and finds no room. A topic that a node made before it knew of the owner is not
counted; so the counter is taken again before a refusal.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from engine.directory.ceilings import Ceiling, Count, count_of, owner_of
from engine.errors import QuotaExhausted
from replication.cluster.keys import TOPICS, tenant_key, topic_key
from replication.cluster.values import decode_value, topic_from_bytes
from replication.coordination.interface import Create, Operation, Put, Session, Versioned


class _Stored(Struct):
    topics: int
    partitions: int


class TopicCounts:
    """The counters of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"TopicCounts({self._session})"

    async def change(self, name: str, added: Count, ceiling: Ceiling | None) -> list[Operation]:
        """Returns what belongs in the commit of a change of a topic. Raises QuotaExhausted.

        `added`: topics and partitions; negative for those that go. Without a ceiling only a counter that is there
        changes.
        """
        owner = owner_of(name) if ceiling is None else ceiling.owner
        if owner is None:
            return []
        key = tenant_key(owner)
        seen = await self._session.get_latest(key)
        if seen is None and ceiling is None:
            return []
        used = await self._count(owner) if seen is None else _count_from(key, seen)
        if ceiling is not None:
            try:
                ceiling.check(used, added)
            except QuotaExhausted:
                used = await self._count(owner)
                ceiling.check(used, added)
        topics, partitions = used.topics + added.topics, used.partitions + added.partitions
        value = msgspec.json.encode(_Stored(max(0, topics), max(0, partitions)))
        return [Create(key, value) if seen is None else Put(key, value, seen.version)]

    async def _count(self, owner: str) -> Count:
        topics = []
        for name in await self._session.children(TOPICS):
            if owner_of(name) == owner and (seen := await self._session.get(topic_key(name))) is not None:
                topics.append((name, topic_from_bytes(topic_key(name), seen.value).partitions))
        return count_of(owner, topics)


def _count_from(key: str, seen: Versioned) -> Count:
    stored = decode_value(key, seen.value, lambda plain: msgspec.convert(plain, _Stored))
    return Count(stored.topics, stored.partitions)
