"""Applies the topics of the cluster to this node: its processes open, change and close them as the store demands.

Level-triggered: an event only names a topic, and `TopicSync` makes this node equal to the current view, one topic at a
time. The local `topic.json` is a copy. Invariants: (1) files are deleted only for a topic with a tombstone in the store
or for partitions that were reassigned, never because something is unknown; unknown topics are set aside: not served and
not touched; (2) every process of this node knows every topic, with or without a local partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from engine.directory.catalog import Catalog
from engine.directory.topics import TopicRecord
from engine.errors import AckTimeout, EngineError, StorageFull
from engine.runtime.tasks import keep_running, log_failure
from node.child_processes import ChildProcesses
from node.messages import record_to
from node.process_calls import ClosePartitions
from replication.cluster.values import TopicEntry
from replication.cluster.view import ClusterView, StateChange
from replication.errors import ChangeWaitsForRoom

log = logging.getLogger("penstock.cluster")

RETRY_S = 1.0  # after a disk error
APPLY_S = 30.0  # usually milliseconds; longer on a slow disk


def wanted_record(entry: TopicEntry, view: ClusterView, node_id: int, record: TopicRecord | None) -> TopicRecord:
    """Returns the record that this node should have. A partition with an unknown state stays where it is."""
    hosted = []
    for number in range(entry.partitions):
        versioned = view.states.get((entry.topic_id, number))
        was_here = record is not None and record.hosted is not None and number in record.hosted
        if was_here if versioned is None else node_id in versioned.state.replicas:
            hosted.append(number)
    return TopicRecord(
        entry.name,
        entry.topic_id,
        entry.partitions,
        entry.replication_factor,
        dict(entry.config),
        entry.created_ms,
        {} if record is None else record.directory_ids,
        tuple(hosted),
    )


class TopicSync:
    """Makes the node's topics equal to the view. `is_deleted` looks for tombstones."""

    def __init__(
        self,
        catalog: Catalog,
        view: ClusterView,
        node_id: int,
        processes: ChildProcesses,
        is_deleted: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._unsent: dict[
            str, TopicRecord | None
        ] = {}  # the record that processes had before an update that some of them have not received
        self._catalog = catalog
        self._view = view
        self._node_id = node_id
        self._processes = processes
        self._is_deleted = is_deleted
        self._changed: dict[str, None] = {}  # in the order of the events
        self._has_changed = asyncio.Event()
        self._applying: str | None = None  # the catalog is updated before the processes
        self._has_applied = asyncio.Event()
        self._failures: dict[str, Exception] = {}  # by topic, of the last attempt
        self._running: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"TopicSync({len(self._catalog.records)}, changed={len(self._changed)})"

    def queue(self, names: Iterable[str]) -> None:
        """Queues topics for a comparison with the view."""
        self._changed.update(dict.fromkeys(names))
        self._has_changed.set()

    def on_states_changed(self, changed: Iterable[StateChange]) -> None:
        """Queues the topics that gained or lost a local partition."""
        for topic_id, number, versioned in changed:
            entry = self._view.topic_by_id(topic_id)
            record = None if entry is None else self._catalog.records.get(entry.name)
            is_here = record is not None and record.hosted is not None and number in record.hosted
            if entry is not None and is_here != (self._node_id in versioned.state.replicas):
                self.queue([entry.name])

    def has(self, topic: TopicEntry) -> bool:
        """True if this node has applied this version of the topic or a newer one."""
        record = self._catalog.records.get(topic.name)
        is_same = record is not None and record.topic_id == topic.topic_id and record.partitions >= topic.partitions
        is_being_applied = topic.name == self._applying or topic.name in self._unsent
        return is_same and topic.name not in self._changed and not is_being_applied

    def has_any(self, topic: TopicEntry) -> bool:
        record = self._catalog.records.get(topic.name)
        return record is not None and record.topic_id == topic.topic_id

    def start(self) -> None:
        """Starts, beginning with all local topics and all topics of the cluster."""
        aside = (record.name for record in self._catalog.set_aside.values())
        self.queue([*self._catalog.records, *self._view.topics, *aside])
        self._running = keep_running(self._run, "applying the cluster's topics")

    def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until a condition holds; it is evaluated after each applied topic."""
        while not is_so():
            self._has_applied.clear()
            await self._has_applied.wait()

    async def wait_applied(self, name: str, is_applied: Callable[[], bool]) -> None:
        """Waits until this node has applied a change of a topic. Raises AckTimeout, ChangeWaitsForRoom."""
        before = self._failures.get(name)

        def is_out_of_room() -> bool:
            failure = self._failures.get(name)
            return failure is not before and isinstance(failure, EngineError) and failure.code == StorageFull.code

        try:
            async with asyncio.timeout(APPLY_S):
                await self.until(lambda: is_applied() or is_out_of_room())
        except TimeoutError:
            failure = self._failures.get(name)
            reason = f": {failure.detail}" if isinstance(failure, EngineError) else ""
            text = f"topic {name!r} has changed, and this node has not applied the change within {APPLY_S:g} s{reason}"
            raise AckTimeout(text, hint="describe the topic, then retry") from None
        if not is_applied():
            text = f"topic {name!r} has changed, and the disk of this node has no space for it"
            raise ChangeWaitsForRoom(text, hint="free space; the node tries it again every second")

    @property
    def is_up_to_date(self) -> bool:
        return not self._changed and self._applying is None

    async def _run(self) -> None:
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            while self._changed:
                name = next(iter(self._changed))
                await self._try_sync(name)
                self._has_applied.set()

    async def _try_sync(self, name: str) -> None:
        async with self._catalog.changing:
            self._changed.pop(name)  # later events queue the topic again
            self._applying = name
            try:
                await self._sync(name)
                self._failures.pop(name, None)
            except Exception as error:  # any kind of error: no later event would name the topic
                self._note_failure(name, error)
                asyncio.get_running_loop().call_later(RETRY_S, self.queue, [name])
            finally:
                self._applying = None

    def _note_failure(self, name: str, error: Exception) -> None:
        """Log a failure, unless the attempt before failed for the same reason: a full disk may stay so for hours."""
        before = self._failures.get(name)
        self._failures[name] = error
        if not isinstance(error, EngineError):
            log_failure("applying the cluster's topics", error, of=name)
        elif str(error) != str(before):
            words = {"topic": name, "reason": str(error), "hint": "it is tried again until it succeeds"}
            log.error("a topic's change could not be applied", extra=words)

    async def _sync(self, name: str) -> None:
        local, entry = self._catalog.records.get(name), self._view.topics.get(name)
        if local is not None and (entry is None or entry.topic_id != local.topic_id):
            await self._close_unknown(local)
            local = None
        for record in [aside for aside in self._catalog.set_aside.values() if aside.name == name]:
            if await self._is_deleted(record.topic_id):
                await self._remove(record)
        if entry is not None:
            before = self._catalog.find_record(
                name, entry.topic_id
            )  # its current record, or that of a topic which returns to its directory
            await self._apply(local, wanted_record(entry, self._view, self._node_id, before))

    async def _close_unknown(self, record: TopicRecord) -> None:
        """Close a topic that is not in the view: remove it if it was deleted, else set it aside.

        An unknown topic stays on the disk: the store may be another one.
        """
        await self._processes.call_shards("close_topic", record.name)
        self._unsent.pop(record.name, None)
        if await self._is_deleted(record.topic_id):
            await self._remove(record)
        else:
            await self._processes.call_worker("set_aside", record_to(record))
            self._catalog.move_aside(record)
            words = {"topic": record.name, "topic_id": record.topic_id, "hint": "its files stay"}
            log.error("a topic on this disk is unknown to the cluster and was quarantined", extra=words)

    async def _remove(self, record: TopicRecord) -> None:
        await self._catalog.delete(record)
        await self._processes.call_worker("removed", record_to(record))

    async def _apply(self, old: TopicRecord | None, record: TopicRecord) -> None:
        """Makes a topic equal to its target record: durable here before any process receives it.

        Finishes an interrupted update first: files of a returning partition are cleared, and no process may have them
        open.
        """
        if old is not None and old.name in self._unsent:
            await self._update_processes(self._unsent[old.name], old)
        if old == record:
            return
        record = await self._catalog.apply(record)
        self._unsent[record.name] = old
        await self._update_processes(old, record)

    async def _update_processes(self, before: TopicRecord | None, record: TopicRecord) -> None:
        """Calls each process, again after a failure. The worker comes last, since it calls the shards."""
        if before is None:
            await self._processes.call_shards("open_topic", record_to(record))
            await self._processes.call_worker("open_topic", record_to(record))
        else:
            old, new = set(before.hosted or ()), set(record.hosted or ())
            if new - old or record.partitions > before.partitions:
                await self._processes.call_shards("open_added", record_to(record))
            await self._processes.call_shards("altered", record_to(record))
            await self._processes.call_worker("altered", record_to(record))
            if gone := sorted(old - new):
                await self._processes.call_shards("close_partitions", ClosePartitions(record.name, gone))
                await self._catalog.remove_partitions(record, gone)
        del self._unsent[record.name]
