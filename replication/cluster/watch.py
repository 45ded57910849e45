"""Watches the coordination store and keeps a ClusterView equal to it: nodes, topics, partition states.

Reads everything once, then has a watch per key: one for each node and topic, one for each 100 partitions of a topic.
Changes within a few milliseconds are reported together to a `ViewListener`. One instance per session. Invariant: nodes
are reported before topics and topics before states; states of unknown topics are reported with the topic; a topic is
gone only once its tombstone is found, which a deletion writes in the same commit. A store that was emptied ends the
session instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from engine.errors import EngineError, StartRefused
from engine.runtime.tasks import BackgroundTasks, in_background
from replication.cluster.keys import CONTROLLER, DRAINED, NODES, STATES, TOPICS, deleted_key
from replication.cluster.partition_state_store import StateBlocks
from replication.cluster.values import NodeInfo, TopicEntry, node_from_bytes, topic_from_bytes
from replication.cluster.view import ClusterView, StateChange
from replication.coordination.interface import Session, SessionLost, Versioned

GATHER_S = 0.005  # a failover changes many keys at the same time, and each has its own watch
READS_AT_ONCE = 100  # during the first read: enough to keep the connection busy

HINT_EMPTIED = (
    "it was emptied, or restored from old data: docs/operate/coordination.md has what to do; nothing was deleted"
)

Changes = dict[str, Versioned | None]


class ViewListener(Protocol):
    """Receives changes of the view. All methods are called in the event loop, are synchronous and cheap."""

    def on_nodes(self, view: ClusterView) -> None: ...

    def on_topics(self, changed: list[TopicEntry], deleted: list[TopicEntry]) -> None: ...

    def on_states(self, changed: list[StateChange]) -> None: ...


class Mirror:
    """The keys below one parent. `changed` has the changes that are not reported yet."""

    def __init__(
        self, session: Session, parent: str, on_changed: Callable[[], None], on_failed: Callable[[], None]
    ) -> None:
        self.changed: Changes = {}
        self._session = session
        self._parent = parent
        self._on_changed = on_changed
        self._on_failed = on_failed
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._names: list[str] = []

    def __repr__(self) -> str:
        return f"Mirror({self._parent}, keys={len(self._watching)})"

    async def load(self) -> None:
        """Reads all keys. Raises SessionLost."""
        self._names = await self._session.children(self._parent)
        for begin in range(0, len(self._names), READS_AT_ONCE):
            names = self._names[begin : begin + READS_AT_ONCE]
            values = await asyncio.gather(*(self._session.get(f"{self._parent}/{name}") for name in names))
            self.changed |= dict(zip(names, values, strict=True))
        for name in self._names:
            self._watch(name, self.changed[name])

    async def follow(self) -> None:
        """Follows created and deleted keys until the session is lost."""
        while True:
            names = await self._session.wait_for_children(self._parent, self._names)
            for name in sorted(set(self._names) - set(names)):
                self._watching.pop(name).cancel()
                self._changed(name, None)
            for name in sorted(set(names) - set(self._names)):
                self._watch(name, None)
            self._names = names

    def stop(self) -> None:
        for task in self._watching.values():
            task.cancel()

    def _watch(self, name: str, seen: Versioned | None) -> None:
        key = f"{self._parent}/{name}"
        work = self._follow(name, seen)
        self._watching[name] = in_background(work, "following the coordination store", self._on_failed, of=key)

    async def _follow(self, name: str, seen: Versioned | None) -> None:
        """Handles a key that is deleted and created again in one commit: its name never disappears."""
        try:
            while True:
                seen = await self._session.wait_for_change(f"{self._parent}/{name}", seen)
                self._changed(name, seen)
        except SessionLost:
            return  # the agent handles the lost session

    def _changed(self, name: str, seen: Versioned | None) -> None:
        self.changed[name] = seen
        self._on_changed()

    def take_changes(self) -> Changes:
        changed, self.changed = self.changed, {}
        return changed


class ClusterWatch:
    """Fills a view from one session: after `load`, `begin` reports what was found and every change."""

    def __init__(
        self, session: Session, view: ClusterView, listener: ViewListener, on_broken: Callable[[Exception], None]
    ):
        self.view = view
        self.blocks = StateBlocks(session, self._apply_states)
        self._session = session
        self._listener = listener
        self._on_broken = on_broken
        self._nodes = Mirror(session, NODES, self._flush_soon, self._on_failed)
        self._drained = Mirror(session, DRAINED, self._flush_soon, self._on_failed)
        self._controller = Mirror(session, CONTROLLER, self._flush_soon, self._on_failed)
        self._topics = Mirror(session, TOPICS, self._flush_soon, self._on_failed)
        self._states = Mirror(session, STATES, self._flush_soon, self._on_failed)
        self._known_nodes: dict[int, NodeInfo] = {}
        self._known_drained: set[int] = set()
        self._tombstones: set[str] = set()  # ids of topics that were certainly deleted
        self._finding_tombstones = False
        self._early: list[StateChange] = []  # states of topics that are not known yet
        self._deferred: list[Callable[[], None]] | None = []  # reports that wait for `begin`
        self._background = BackgroundTasks()
        self._flush_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"ClusterWatch({self.view}, {self.blocks})"

    async def load(self) -> None:
        """Fill the view without reports. Raises SessionLost, Corrupt, StartRefused if topics vanished undeleted."""
        await asyncio.gather(*(mirror.load() for mirror in self._mirrors()))
        gone = self.view.topics.keys() - self._topics.changed.keys()
        self._topics.changed |= dict.fromkeys(gone)
        await self._find_tombstones(self._gone_topics(self._topics.changed))
        self.view.states.clear()  # a new registration reports all states
        self._apply_changes()

    def begin(self) -> None:
        """Reports what `load` found, and every change from then on."""
        deferred, self._deferred = self._deferred or [], None
        for report in deferred:
            report()
        for mirror in self._mirrors():
            self._spawn(mirror.follow())
        self._flush_soon()

    def stop(self) -> None:
        self._deferred = []
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._background.cancel()
        for mirror in self._mirrors():
            mirror.stop()

    def _mirrors(self) -> tuple[Mirror, ...]:
        return self._nodes, self._drained, self._controller, self._topics, self._states

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except SessionLost:
                return  # the agent handles the lost session

        self._background.start(run(), "following the coordination store", self._on_failed)

    def _on_failed(self) -> None:
        """Later changes would be missed: a new session reads everything again."""
        self._on_broken(EngineError("a watch of the coordination store ended"))

    def _report(self, report: Callable[[], None]) -> None:
        if self._deferred is None:
            report()
        else:
            self._deferred.append(report)

    def _flush_soon(self) -> None:
        if self._deferred is None and self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(GATHER_S, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        try:
            self._apply_changes()
        except Exception as error:  # this version must not act on data that it does not understand
            self._on_broken(error)

    def _apply_changes(self) -> None:
        self._apply_nodes()
        self._apply_topics()
        self.blocks.apply(self._states.take_changes().items())

    def _apply_nodes(self) -> None:
        nodes, drained, controller = (
            self._nodes.take_changes(),
            self._drained.take_changes(),
            self._controller.take_changes(),
        )
        for name, seen in nodes.items():
            if seen is None:
                self._known_nodes.pop(int(name), None)
            else:
                self._known_nodes[int(name)] = node_from_bytes(f"{NODES}/{name}", seen.value, seen.created)
        for name, seen in drained.items():
            (self._known_drained.discard if seen is None else self._known_drained.add)(int(name))
        if "holder" in controller:
            holder = controller["holder"]
            self.view.controller = None if holder is None else int(holder.value)
        if nodes or drained or "holder" in controller:
            self.view.put_nodes(self._known_nodes, self._known_drained)
            self._report(lambda: self._listener.on_nodes(self.view))

    def _apply_topics(self) -> None:
        changed: list[TopicEntry] = []
        deleted: list[TopicEntry] = []
        if self._finding_tombstones:
            return
        changes = self._topics.take_changes()
        if unproven := self._gone_topics(changes):
            self._topics.changed = changes  # all wait, for one read
            self._finding_tombstones = True
            self._background.start(self._prove_deleted(unproven), "reading tombstones", self._on_failed)
            return
        for name, seen in changes.items():
            old = self.view.topics.get(name)
            new = None if seen is None else topic_from_bytes(f"{TOPICS}/{name}", seen.value)
            if old is not None and (new is None or new.topic_id != old.topic_id):
                self.view.remove_topic(old)
                deleted.append(old)
            if new is not None and new != old:
                self.view.put_topic(new)
                changed.append(new)
        if changed or deleted:
            self._report(lambda: self._listener.on_topics(changed, deleted))
        if changed:
            early, self._early = self._early, []
            self._apply_states(early)

    def _gone_topics(self, changes: Changes) -> list[TopicEntry]:
        """The topics of the view that these changes would remove, and whose tombstone was not seen yet."""
        before = [(topic, changes[name]) for name, topic in self.view.topics.items() if name in changes]
        return [
            topic
            for topic, seen in before
            if topic.topic_id not in self._tombstones
            and (seen is None or topic_from_bytes(f"{TOPICS}/{topic.name}", seen.value).topic_id != topic.topic_id)
        ]

    async def _find_tombstones(self, topics: list[TopicEntry]) -> None:
        """Raises StartRefused if a topic has none: it was not deleted, the store has lost it."""
        for topic in topics:
            if await self._session.get(deleted_key(topic.topic_id)) is None:
                raise StartRefused(f"the coordination store has lost topic {topic.name!r}", hint=HINT_EMPTIED)
            self._tombstones.add(topic.topic_id)

    async def _prove_deleted(self, topics: list[TopicEntry]) -> None:
        try:
            await self._find_tombstones(topics)
        except SessionLost:
            return  # the agent handles the lost session
        except Exception as error:
            self._on_broken(error)
            return
        self._finding_tombstones = False
        self._flush_soon()

    def _apply_states(self, changed: list[StateChange]) -> None:
        """Applies states of known partitions. Others belong to a topic that is being created or deleted."""
        known = []
        for change in changed:
            topic = self.view.topic_by_id(change[0])
            if topic is not None and change[1] < topic.partitions:
                known.append(change)
            elif self.blocks.has(change[0], change[1]):
                self._early.append(change)
        newer = self.view.put_states(known)
        if newer:
            self._report(lambda: self._listener.on_states(newer))
