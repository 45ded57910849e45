"""Watches the coordination store and keeps a ClusterView as it is there: nodes, topics, partition states.

Reads everything once, then a watch per key: one for each node and topic, one for each 100 partitions of a topic. What
changes within a few milliseconds is told as one change. Not what to do about it: `Heard` does that. Lives as long as
its session; a new session makes a new one.
Invariant: of one change, nodes are told before topics and topics before states; states of topics that are not known yet
are told with the topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from engine.errors import EngineError
from engine.runtime.tasks import BackgroundTasks, in_background
from replication.cluster.keys import CONTROLLER, DRAINED, NODES, STATES, TOPICS
from replication.cluster.partition_state_store import StateBlocks
from replication.cluster.values import NodeInfo, TopicEntry, node_from_bytes, topic_from_bytes
from replication.cluster.view import ClusterView, StateChange
from replication.coordination.interface import Session, SessionLost, Versioned

GATHER_S = 0.005  # a failover changes many keys at once, and each is heard of by itself
READS_AT_ONCE = 100  # of the first reading: enough to keep the connection busy

Changes = dict[str, Versioned | None]


class Heard(Protocol):
    """Who is told. All in the event loop, at once, and cheap."""

    def on_nodes(self, view: ClusterView) -> None: ...

    def on_topics(self, changed: list[TopicEntry], deleted: list[TopicEntry]) -> None: ...

    def on_states(self, changed: list[StateChange]) -> None: ...


class Mirror:
    """The keys below one parent. `changed` gathers what is to be told."""

    def __init__(
        self, session: Session, parent: str, when_changed: Callable[[], None], when_failed: Callable[[], None]
    ) -> None:
        self.changed: Changes = {}
        self._session = session
        self._parent = parent
        self._when_changed = when_changed
        self._when_failed = when_failed
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._names: list[str] = []

    def __repr__(self) -> str:
        return f"Mirror({self._parent}, keys={len(self._watching)})"

    async def load(self) -> None:
        """Everything as it is. Raises SessionLost."""
        self._names = await self._session.children(self._parent)
        for begin in range(0, len(self._names), READS_AT_ONCE):
            names = self._names[begin : begin + READS_AT_ONCE]
            found = await asyncio.gather(*(self._session.get(f"{self._parent}/{name}") for name in names))
            self.changed |= dict(zip(names, found, strict=True))
        for name in self._names:
            self._watch(name, self.changed[name])

    async def follow(self) -> None:
        """Whatever comes and goes, until the session is lost."""
        while True:
            names = await self._session.wait_for_children(self._parent, self._names)
            for name in sorted(set(self._names) - set(names)):
                self._watching.pop(name).cancel()
                self._tell(name, None)
            for name in sorted(set(names) - set(self._names)):
                self._watch(name, None)
            self._names = names

    def stop(self) -> None:
        for task in self._watching.values():
            task.cancel()

    def _watch(self, name: str, seen: Versioned | None) -> None:
        key = f"{self._parent}/{name}"
        work = self._follow(name, seen)
        self._watching[name] = in_background(work, "following the coordination store", self._when_failed, of=key)

    async def _follow(self, name: str, seen: Versioned | None) -> None:
        """A key that is deleted and made again within one commit is the same name all the time."""
        try:
            while True:
                seen = await self._session.wait_for_change(f"{self._parent}/{name}", seen)
                self._tell(name, seen)
        except SessionLost:
            return  # whoever has the session hears of it from the session

    def _tell(self, name: str, seen: Versioned | None) -> None:
        self.changed[name] = seen
        self._when_changed()

    def taken(self) -> Changes:
        changed, self.changed = self.changed, {}
        return changed


class ClusterWatch:
    """Fills a view anew, from one session: `load`, then `begin` tells what was found and goes on."""

    def __init__(self, session: Session, view: ClusterView, heard: Heard, when_broken: Callable[[Exception], None]):
        self.view = view
        self.blocks = StateBlocks(session, self._states_changed)
        self._heard = heard
        self._when_broken = when_broken
        self._nodes = Mirror(session, NODES, self._tell_soon, self._failed)
        self._drained = Mirror(session, DRAINED, self._tell_soon, self._failed)
        self._controller = Mirror(session, CONTROLLER, self._tell_soon, self._failed)
        self._topics = Mirror(session, TOPICS, self._tell_soon, self._failed)
        self._states = Mirror(session, STATES, self._tell_soon, self._failed)
        self._known_nodes: dict[int, NodeInfo] = {}
        self._known_drained: set[int] = set()
        self._early: list[StateChange] = []  # of topics that are not known yet
        self._unsaid: list[Callable[[], None]] | None = []  # until it begins
        self._background = BackgroundTasks()
        self._telling: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"ClusterWatch({self.view}, {self.blocks})"

    async def load(self) -> None:
        """Make the view whole; nobody is told yet. Raises SessionLost, Corrupt."""
        await asyncio.gather(*(mirror.load() for mirror in self._mirrors()))
        self.view.states.clear()  # all of it is news to a new registration
        gone = self.view.topics.keys() - self._topics.changed.keys()
        self._topics.changed |= dict.fromkeys(gone)
        self._take_in()

    def begin(self) -> None:
        """Tell what `load` found, and whatever changes from then on."""
        unsaid, self._unsaid = self._unsaid or [], None
        for say in unsaid:
            say()
        for mirror in self._mirrors():
            self._spawn(mirror.follow())
        self._tell_soon()

    def stop(self) -> None:
        self._unsaid = []
        if self._telling is not None:
            self._telling.cancel()
        self._background.cancel()
        for mirror in self._mirrors():
            mirror.stop()

    def _mirrors(self) -> tuple[Mirror, ...]:
        return self._nodes, self._drained, self._controller, self._topics, self._states

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def until_lost() -> None:
            try:
                await work
            except SessionLost:
                return  # whoever has the session hears of it from the session

        self._background.start(until_lost(), "following the coordination store", self._failed)

    def _failed(self) -> None:
        """What changes from here on would not be heard of: another session reads everything again."""
        self._when_broken(EngineError("a watch of the coordination store has ended"))

    def _say(self, say: Callable[[], None]) -> None:
        if self._unsaid is None:
            say()
        else:
            self._unsaid.append(say)

    def _tell_soon(self) -> None:
        if self._unsaid is None and self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(GATHER_S, self._tell)

    def _tell(self) -> None:
        self._telling = None
        try:
            self._take_in()
        except Exception as error:  # what this version does not understand it must not act upon
            self._when_broken(error)

    def _take_in(self) -> None:
        self._take_in_nodes()
        self._take_in_topics()
        self.blocks.adopt(self._states.taken().items())

    def _take_in_nodes(self) -> None:
        nodes, drained, controller = self._nodes.taken(), self._drained.taken(), self._controller.taken()
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
            self._say(lambda: self._heard.on_nodes(self.view))

    def _take_in_topics(self) -> None:
        changed: list[TopicEntry] = []
        deleted: list[TopicEntry] = []
        for name, seen in self._topics.taken().items():
            old = self.view.topics.get(name)
            new = None if seen is None else topic_from_bytes(f"{TOPICS}/{name}", seen.value)
            if old is not None and (new is None or new.topic_id != old.topic_id):
                self.view.remove_topic(old)
                deleted.append(old)
            if new is not None and new != old:
                self.view.put_topic(new)
                changed.append(new)
        if changed or deleted:
            self._say(lambda: self._heard.on_topics(changed, deleted))
        if changed:
            early, self._early = self._early, []
            self._states_changed(early)

    def _states_changed(self, changed: list[StateChange]) -> None:
        """Of partitions that are there. Those beyond are of a topic in the making, or of one that is going."""
        told = []
        for change in changed:
            topic = self.view.topic_by_id(change[0])
            if topic is not None and change[1] < topic.partitions:
                told.append(change)
            elif self.blocks.has(change[0], change[1]):
                self._early.append(change)
        news = self.view.put_states(told)
        if news:
            self._say(lambda: self._heard.on_states(news))
