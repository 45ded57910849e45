"""A node's part in its cluster: its session with the coordination store, and everything that is done through it.

The composition of membership.py, cluster_watch.py, controller.py, cluster_topics.py and operations.py over one session
after the other: a session that is lost takes all of them with it, and the node registers anew as another incarnation.
Lives in the supervisor; shards hear of it through the listener. Does not know partitions' logs, nor HTTP.
Invariant: the listener has heard of the end of one registration before it hears of the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Protocol

from engine.errors import EngineError, StartRefused
from engine.runtime.clock import Clock
from engine.runtime.tasks import BackgroundTasks, in_background, keep_running, warn_of
from replication.cluster.controller import ControllerOffice, Rebalancing
from replication.cluster.identity import check_not_older, found_again, joined
from replication.cluster.keys import PartitionKey, block_of, partition_name
from replication.cluster.leadership_check import Gathering
from replication.cluster.membership import Contact, Membership, OwnNode, close_session, until_lost
from replication.cluster.operations import Operations
from replication.cluster.topics import ClusterTopics
from replication.cluster.values import ClusterIdentity, NotKnown, Outcome, Proposal, TopicEntry
from replication.cluster.view import ClusterView, StateChange
from replication.cluster.watch import ClusterWatch
from replication.coordination.interface import Session, SessionLost, State
from replication.cores.partition_state import Member, VersionedState

RETRY_S = (0.1, 0.5, 1.0, 2.0)  # after so many failures to begin again; the last one goes on
CONFIRM_PAUSE_S = 0.01  # between two commits that only confirm: they cost the store as much as any other
NEWS_S = 5.0  # until what a commit has made is heard of here; longer only when the store itself stands still

log = logging.getLogger("penstock.cluster")


class ClusterListener(Protocol):
    """All called in the event loop, synchronous, cheap."""

    def on_registered(self, member: Member) -> None: ...

    def on_session_lost(self) -> None:
        """Everything we lead is over; a new registration follows."""

    def on_contact(self, at: float) -> None:
        """The store has answered what was sent at this time of Clock.boottime."""

    def on_nodes(self, view: ClusterView) -> None: ...

    def on_topics(self, changed: list[TopicEntry], deleted: list[TopicEntry]) -> None:
        """`deleted`: gone from the store. Files may go only if `is_deleted` says so."""

    def on_states(self, changed: list[StateChange]) -> None: ...


@dataclass(frozen=True, slots=True)
class AgentSettings:
    session_timeout_ms: int = 6000
    leader_rebalance_check_ms: int = 60_000
    leader_imbalance_percent: int = 10


class _Life:
    """What belongs to one session."""

    def __init__(self, agent: ClusterAgent, session: Session) -> None:
        settings = agent.settings
        timeout_s = settings.session_timeout_ms / 1000
        rebalancing = Rebalancing(settings.leader_rebalance_check_ms, settings.leader_imbalance_percent)
        self.session = session
        self.membership = Membership(session, agent.own, agent.new_id, timeout_s * 1.5)
        self.contact = Contact(session, timeout_s, agent.clock, agent.listener.on_contact)
        self.watch = ClusterWatch(session, agent.view, agent, agent.broken)
        self.confirmed = Gathering(self.watch.blocks.confirm, CONFIRM_PAUSE_S)
        self.topics = ClusterTopics(session, agent.view, agent.clock, agent.new_id)
        self.operations = Operations(session, agent.view, self.topics, self.watch.blocks, agent.until_heard)
        self.office = ControllerOffice(
            session, agent.view, self.watch.blocks, agent.own.node_id, rebalancing, agent.clock
        )
        self.has_seen_own = False  # the registration, among those of all nodes
        self._again = agent.register_again
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """A life without one of these would lose contact for ever, or be a controller that does nothing."""
        works = {"asking whether the session lives": self.contact.run(), "the controller's office": self.office.run()}
        self._tasks += [in_background(work, doing, self._again) for doing, work in works.items()]

    async def end(self) -> None:
        self.watch.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await close_session(self.session)


class ClusterAgent:
    """See the head of the file."""

    def __init__(
        self,
        open_session: Callable[[], Awaitable[Session]],
        own: OwnNode,
        listener: ClusterListener,
        clock: Clock,
        new_id: Callable[[], str],
        random: Random,
        settings: AgentSettings,
    ) -> None:
        self.own = own
        self.listener = listener
        self.clock = clock
        self.new_id = new_id
        self.settings = settings
        self.view = ClusterView()
        self.member: Member | None = None
        self._open_session = open_session
        self._random = random
        self._identity: ClusterIdentity | None = None
        self._session: Session | None = None  # of join_cluster, until start takes it
        self._life: _Life | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._epochs: Mapping[PartitionKey, int] = {}  # leader epochs that have been, as known before this session
        self._is_leaving = False
        self._offline: frozenset[str] = frozenset()
        self._updating = BackgroundTasks()
        self._news = asyncio.Event()

    def __repr__(self) -> str:
        return f"ClusterAgent(node={self.own.node_id}, member={self.member}, {self.view})"

    @property
    def is_controller(self) -> bool:
        return self._life is not None and self._life.office.epoch is not None

    @property
    def contact_at(self) -> float:
        """When the last question was sent that the store has answered."""
        return -inf if self._life is None else self._life.contact.at

    # Begin and end.

    async def join_cluster(self, wanted_id: str = "", directory_id: str = "") -> ClusterIdentity:
        """Read which cluster this is; the first node makes it. `wanted_id` is the setting, `directory_id` the cluster
        that the data directory belongs to, if it was used. Raises StartRefused.
        """
        self._session = await self._open_session()
        try:
            self._identity = await joined(self._session, self.new_id, wanted_id, directory_id)
        except BaseException:
            await self._session.close()
            raise
        return self._identity

    async def start(self, local_epochs: Mapping[PartitionKey, int] | None = None) -> None:
        """Register; from here on the listener is told everything. Raises StartRefused."""
        session, self._session = self._session, None
        if session is None or session.state is State.LOST:
            session = await self._open_session()
        self._epochs = local_epochs or {}
        try:
            await self._begin(session)
        except BaseException as error:
            await session.close()
            if isinstance(error, EngineError) and not isinstance(error, StartRefused):
                raise StartRefused(error.detail, hint=error.hint) from error
            raise
        self._keeping = keep_running(self._keep, "keeping a session")

    async def stop(self) -> None:
        """End the session: who is led by others learns at once."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        self._updating.cancel()
        if self._life is not None:
            life, self._life = self._life, None
            await life.end()
        if self._session is not None:
            await self._session.close()

    async def leave(self, deadline_s: float) -> None:
        """Say that this node is leaving; returns when it leads nothing that another could, or after so long."""
        self._is_leaving = True
        try:
            async with asyncio.timeout(deadline_s):
                if self._life is not None:
                    await self._life.membership.update(is_leaving=True)
                await self._until(lambda: not self._leads_what_another_could())
        except (TimeoutError, EngineError):
            return

    def register_again(self) -> None:
        """A process of this node has died and forgotten what it had said as a leader: be another incarnation.

        It opens its partitions anew; of those that a disk has failed all processes tell again (ReplicaHost).
        """
        self._offline = frozenset()
        if self._life is not None:
            self._updating.start(close_session(self._life.session), "ending the session")

    # What shards ask for.

    async def confirmed_state(self, topic_id: str, number: int) -> VersionedState | None:
        """As the store has it at some time after this call. Raises SessionLost, Unsure, Conflict."""
        return (await self._now.confirmed.answer(block_of(topic_id, number)) or {}).get(number)

    async def propose(self, proposals: Sequence[Proposal]) -> list[Outcome]:
        """An outcome for each. NotKnown ends with the session: what came of it is among the states that follow."""
        if self._life is None:
            return [NotKnown() for _ in proposals]
        return await self._life.watch.blocks.write(proposals)

    def partition_offline(self, topic_id: str, number: int) -> None:
        """This node's disk has failed a partition: others are to lead it."""
        self._offline |= {partition_name(topic_id, number)}
        self._updating.start(self._update_offline(), "telling what is offline")

    # Topics.

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, overrides: Mapping[str, object]
    ) -> tuple[TopicEntry, bool]:
        """The topic, and whether it is new; heard of here when this returns. Raises TopicExists, Invalid."""
        topic, is_new = await self._now.topics.create(name, partitions, replication_factor, overrides)
        await self.until_heard(lambda: self._knows(topic))
        return topic, is_new

    async def alter_topic(self, name: str, overrides: Mapping[str, object], partitions: int | None) -> TopicEntry:
        """Raises UnknownTopic, InvalidConfig."""
        topic = await self._now.topics.alter(name, overrides, partitions)
        await self.until_heard(lambda: self._knows(topic))
        return topic

    async def delete_topic(self, name: str) -> TopicEntry:
        """Raises UnknownTopic."""
        topic = await self._now.topics.delete(name)
        await self.until_heard(lambda: self.view.topic_by_id(topic.topic_id) is None)
        return topic

    async def find_topic(self, name: str) -> TopicEntry | None:
        return await self._now.topics.find(name)

    async def is_deleted(self, topic_id: str) -> bool:
        """Whether a topic that the store does not know has a tombstone: else its files are set aside, not removed."""
        return await self._now.topics.is_deleted(topic_id)

    @property
    def operations(self) -> Operations:
        """What operators ask for. Raises SessionLost while there is no session."""
        return self._now.operations

    # What the watch tells, to the listener and to the controller.

    def on_nodes(self, view: ClusterView) -> None:
        self.listener.on_nodes(view)
        if self._life is not None:
            self._look_for_own(self._life, view)
            self._life.office.on_nodes()
        self._news.set()

    def _look_for_own(self, life: _Life, view: ClusterView) -> None:
        """A registration may go, or say what another life said, while its session lives: versions of a key that is made
        anew begin at 0 again, so what a dead life had sent, and came late, took this key for the one it had known.
        Nobody else tells. What is seen before the own registration is seen is older than that.
        """
        found = view.nodes.get(self.own.node_id)
        if self.member is None:
            return
        is_as_new = found is not None and found.incarnation >= self.member.incarnation
        if found is not None and is_as_new and found.nonce == life.membership.nonce:
            life.has_seen_own = True
        elif life.has_seen_own or is_as_new:
            log.error("this node's registration is gone; it registers anew", extra={"was": self.member.incarnation})
            life.has_seen_own = False
            self.register_again()

    def on_topics(self, changed: list[TopicEntry], deleted: list[TopicEntry]) -> None:
        self.listener.on_topics(changed, deleted)
        if self._life is not None:
            self._life.office.on_topics(changed, deleted)
        self._news.set()

    def on_states(self, changed: list[StateChange]) -> None:
        self.listener.on_states(changed)
        if self._life is not None:
            self._life.office.on_states(changed)
        self._news.set()

    def broken(self, error: Exception) -> None:
        """The store holds what this version does not understand: end this session, and do not act upon it."""
        log.error("the coordination store cannot be followed", extra={"reason": str(error) or repr(error)})
        self.register_again()

    # Sessions.

    @property
    def session(self) -> Session:
        """For what else lies in the store. Raises SessionLost while there is none."""
        return self._now.session

    @property
    def _now(self) -> _Life:
        if self._life is None:
            raise SessionLost("there is no session with the coordination store now", hint="try again")
        return self._life

    async def _begin(self, session: Session) -> None:
        """Raises StartRefused, SessionLost, Corrupt. The view is that of the store then, though it may be refused."""
        self._identity = await found_again(session, self._identity)
        life = _Life(self, session)
        try:
            await life.watch.load()
            check_not_older(self.view, self._epochs)
            member = await life.membership.register(self._is_leaving, self._offline)
        except BaseException:
            await life.end()
            raise
        self._life, self.member = life, member
        self.listener.on_registered(member)
        self.listener.on_contact(life.contact.at)
        life.watch.begin()
        life.begin()

    async def _keep(self) -> None:
        """A session that is lost is followed by another one, whatever it takes."""
        while True:
            if self._life is not None:
                await until_lost(self._life.session)
                await self._end_life(self._life)
            failures = 0
            while self._life is None:
                await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)] * (0.5 + self._random.random()))
                failures += 1
                await self._try_again()

    async def _end_life(self, life: _Life) -> None:
        log.warning("the session with the coordination store is over; this node registers anew")
        self._life, self.member = None, None
        self._epochs = {key: found.state.leader_epoch for key, found in self.view.states.items()}
        try:
            self.listener.on_session_lost()
        finally:
            await life.end()

    async def _try_again(self) -> None:
        """Whatever is in the way now, the next time may find it gone: no node is to need a restart for that."""
        try:
            session = await self._open_session()
        except Exception as error:
            warn_of("no session with the coordination store", error)
            return
        try:
            await self._begin(session)
        except Exception as error:  # an OSError, too: a full disk does not take what is vouched for
            warn_of("this node cannot register", error)
            await close_session(session)

    async def _update_offline(self) -> None:
        if self._life is not None:
            try:
                await self._life.membership.update(offline=self._offline)
            except EngineError:
                return  # the next registration says it

    # Waiting for what the watch tells.

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    async def until_heard(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(NEWS_S):
                await self._until(condition)
        except TimeoutError:
            return  # it is done; who asks this node meanwhile is told what it knew before

    def _knows(self, topic: TopicEntry) -> bool:
        known = self.view.topic_by_id(topic.topic_id)
        has_all = (topic.topic_id, topic.partitions - 1) in self.view.states
        return known is not None and has_all and known.config == topic.config

    def _leads_what_another_could(self) -> bool:
        own = self.own.node_id
        staying = {n for n, found in self.view.registrations.items() if not found.is_leaving and n != own}
        for found in self.view.states.values():
            leader = found.state.leader
            if leader is not None and leader.node_id == own and any(m.node_id in staying for m in found.state.in_sync):
                return True
        return False
