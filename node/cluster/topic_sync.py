"""The topics of the cluster as this node has them: what its processes open, change and close when the store says so.

Level-triggered: whoever hears of a change names the topic, and `TopicSync` brings this node to what the view says
now, one topic after the other, however often and in whichever order it was told. The local `topic.json` is a copy.
What must hold: (1) files go only for a topic that was deleted (its tombstone is in the store) or for partitions that
were moved to other nodes, never because something is not known; what the store does not know is set aside: not served
and not touched; (2) every process of this node knows every topic, whether or not a partition of it lies here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from engine.directory.catalog import Catalog
from engine.directory.topics import TopicRecord
from engine.errors import EngineError
from engine.runtime.tasks import keep_running, note_failure
from node.cluster.standalone_topics import Processes
from node.messages import record_to
from replication.cluster.values import TopicEntry
from replication.cluster.view import ClusterView, StateChange

log = logging.getLogger("penstock.cluster")

RETRY_S = 1.0  # after a disk refused; the node is not without the topic for longer than that takes


def wanted_record(entry: TopicEntry, view: ClusterView, node_id: int, known: TopicRecord | None) -> TopicRecord:
    """The record that this node should have. A partition whose state has not been heard of stays where it is."""
    hosted = []
    for number in range(entry.partitions):
        found = view.states.get((entry.topic_id, number))
        was_here = known is not None and known.hosted is not None and number in known.hosted
        if was_here if found is None else node_id in found.state.replicas:
            hosted.append(number)
    return TopicRecord(
        entry.name,
        entry.topic_id,
        entry.partitions,
        entry.replication_factor,
        dict(entry.config),
        entry.created_ms,
        {} if known is None else known.elsewhere,
        tuple(hosted),
    )


class TopicSync:
    """Follows the view. `is_deleted` knows of tombstones."""

    def __init__(
        self,
        catalog: Catalog,
        view: ClusterView,
        node_id: int,
        processes: Processes,
        is_deleted: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._half_told: dict[str, TopicRecord | None] = {}  # what processes had that are yet to hear of the record
        self._catalog = catalog
        self._view = view
        self._node_id = node_id
        self._processes = processes
        self._is_deleted = is_deleted
        self._changed: dict[str, None] = {}  # in the order in which they were named
        self._has_changed = asyncio.Event()
        self._following: str | None = None  # the catalog has it before the processes do
        self._has_followed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"TopicSync({len(self._catalog.records)}, changed={len(self._changed)})"

    def changed(self, names: Iterable[str]) -> None:
        """Something about these topics is not as it was."""
        self._changed.update(dict.fromkeys(names))
        self._has_changed.set()

    def states_changed(self, changed: Iterable[StateChange]) -> None:
        """Of these, where a partition came or went."""
        for topic_id, number, found in changed:
            entry = self._view.topic_by_id(topic_id)
            known = None if entry is None else self._catalog.records.get(entry.name)
            is_here = known is not None and known.hosted is not None and number in known.hosted
            if entry is not None and is_here != (self._node_id in found.state.replicas):
                self.changed([entry.name])

    def has(self, topic: TopicEntry) -> bool:
        """Whether this node has what was written, or something newer."""
        known = self._catalog.records.get(topic.name)
        is_same = known is not None and known.topic_id == topic.topic_id and known.partitions >= topic.partitions
        is_being_followed = topic.name == self._following or topic.name in self._half_told
        return is_same and topic.name not in self._changed and not is_being_followed

    def has_any(self, topic: TopicEntry) -> bool:
        known = self._catalog.records.get(topic.name)
        return known is not None and known.topic_id == topic.topic_id

    def start(self) -> None:
        """From here on everything local and everything of the cluster is brought together."""
        aside = (record.name for record in self._catalog.set_aside.values())
        self.changed([*self._catalog.records, *self._view.topics, *aside])
        self._running = keep_running(self._run, "following the topics of the cluster")

    def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until this node has followed so far."""
        while not is_so():
            self._has_followed.clear()
            await self._has_followed.wait()

    @property
    def is_up_to_date(self) -> bool:
        return not self._changed and self._following is None

    async def _run(self) -> None:
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            while self._changed:
                name = next(iter(self._changed))
                await self._follow(name)
                self._has_followed.set()

    async def _follow(self, name: str) -> None:
        async with self._catalog.changing:
            self._changed.pop(name)  # what is heard from here on is looked at again
            self._following = name
            try:
                await self._bring(name)
            except Exception as error:  # of any kind: nobody else names the topic again
                if isinstance(error, EngineError):
                    log.error("a topic's change was not followed", extra={"topic": name, "reason": str(error)})
                else:
                    note_failure("following the topics of the cluster", error, of=name)
                asyncio.get_running_loop().call_later(RETRY_S, self.changed, [name])
            finally:
                self._following = None

    async def _bring(self, name: str) -> None:
        known, entry = self._catalog.records.get(name), self._view.topics.get(name)
        if known is not None and (entry is None or entry.topic_id != known.topic_id):
            await self._leave(known)
            known = None
        for record in [one for one in self._catalog.set_aside.values() if one.name == name]:
            if await self._is_deleted(record.topic_id):
                await self._remove(record)
        if entry is not None:
            before = self._catalog.having(name, entry.topic_id)  # known, or it comes back to where it lies
            await self._have(known, wanted_record(entry, self._view, self._node_id, before))

    async def _leave(self, known: TopicRecord) -> None:
        """1. It was deleted. 2. Nobody knows: perhaps the store is not the one that it was."""
        await self._processes.tell_shards("close_topic", known.name)
        self._half_told.pop(known.name, None)
        if await self._is_deleted(known.topic_id):
            await self._remove(known)
        else:
            await self._processes.tell_worker("set_aside", record_to(known))
            self._catalog.put_aside(known)
            words = {"topic": known.name, "topic_id": known.topic_id, "hint": "its files stay"}
            log.error("a topic on this disk is not known to the cluster: it is set aside", extra=words)

    async def _remove(self, record: TopicRecord) -> None:
        await self._catalog.delete(record)
        await self._processes.tell_worker("removed", record_to(record))

    async def _have(self, known: TopicRecord | None, wanted: TopicRecord) -> None:
        """Durable here before any process is told. What was not told to its end is told first: files of a partition
        that comes back are cleared, and nobody may have it open then.
        """
        if known is not None and known.name in self._half_told:
            await self._tell(self._half_told[known.name], known)
        if known == wanted:
            return
        wanted = await self._catalog.adopt(wanted)
        self._half_told[wanted.name] = known
        await self._tell(known, wanted)

    async def _tell(self, before: TopicRecord | None, record: TopicRecord) -> None:
        """Each process as often as it takes; the worker last, since it asks the shards at once."""
        if before is None:
            await self._processes.tell_shards("open_topic", record_to(record))
            await self._processes.tell_worker("open_topic", record_to(record))
        else:
            old, new = set(before.hosted or ()), set(record.hosted or ())
            if new - old or record.partitions > before.partitions:
                await self._processes.tell_shards("open_added", record_to(record))
            await self._processes.tell_shards("altered", record_to(record))
            await self._processes.tell_worker("altered", record_to(record))
            if gone := sorted(old - new):
                await self._processes.tell_shards("close_partitions", [record.name, gone])
                await self._catalog.let_go(record, gone)
        del self._half_told[record.name]
