"""A node's membership in its cluster: its session with the coordination store, and everything that is done through it.

Composes membership.py, watch.py, controller.py, topics.py and operations.py for one session after the other. A lost
session ends all of them, and the node registers again with a greater broker epoch. Runs in the supervisor; shards are
notified through the listener. Knows neither partitions' logs nor HTTP. Invariant: the listener receives the end of one
registration before the start of the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from random import Random

from engine.directory.ceilings import Ceiling
from engine.errors import EngineError, StartRefused
from engine.runtime.clock import Clock
from engine.runtime.tasks import BackgroundTasks, in_background, keep_running, warn_of
from replication.cluster.controller import ControllerCandidate, Rebalancing
from replication.cluster.keys import CLUSTER, PartitionKey, block_of, partition_name
from replication.cluster.membership import (
    Fenced,
    Membership,
    OwnNode,
    check_not_older,
    check_same_cluster,
    close_session,
    join,
    wait_lost,
)
from replication.cluster.operations import Operations
from replication.cluster.store_calls import Coalescer, Heartbeat
from replication.cluster.topics import ClusterTopics
from replication.cluster.values import (
    ClusterIdentity,
    Outcome,
    OutcomeUnknown,
    Proposal,
    TopicEntry,
    identity_from_bytes,
)
from replication.cluster.view import ClusterListener, ClusterView, StateChange
from replication.cluster.watch import ClusterWatch
from replication.coordination.interface import Session, SessionLost, State, Versioned
from replication.cores.partition_state import Member, VersionedState

RETRY_S = (0.1, 0.5, 1.0, 2.0)  # after 1, 2, 3 … failed registrations in a row; the last value repeats
CONFIRM_PAUSE_S = 0.01  # between two commits that only check versions: they cost the store as much as a write
LAST_COUNT_S = 2.0  # a node that stops does not wait longer for a silent store
VIEW_TIMEOUT_S = 5.0  # until a commit is visible in the view here; longer only if the store itself is slow

log = logging.getLogger("penstock.cluster")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    session_timeout_ms: int = 6000
    leader_imbalance_check_ms: int = 60_000
    leader_imbalance_percent: int = 10


class _ActiveSession:
    """The parts that belong to one session."""

    def __init__(self, agent: ClusterAgent, session: Session) -> None:
        settings = agent.settings
        timeout_s = settings.session_timeout_ms / 1000
        rebalancing = Rebalancing(settings.leader_imbalance_check_ms, settings.leader_imbalance_percent)
        self.session = session
        self.membership = Membership(session, agent.own, agent.new_id, timeout_s * 1.5)
        self.contact = Heartbeat(session, timeout_s, agent.clock, agent.listener.on_contact, agent.on_cluster)
        self.watch = ClusterWatch(session, agent.view, agent, agent.on_broken)
        self.confirmed = Coalescer(self.watch.blocks.confirm, CONFIRM_PAUSE_S)
        self.topics = ClusterTopics(session, agent.view, agent.clock, agent.new_id)
        self.operations = Operations(session, agent.view, self.topics, self.watch.blocks, agent.wait_in_view)
        self.candidate = ControllerCandidate(
            session, agent.view, self.watch.blocks, agent.own.node_id, rebalancing, agent.clock
        )
        self.has_seen_own = False  # the own registration, among those of all nodes
        self._again = agent.reregister
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """If one of these tasks fails, the node registers again, since it needs all of them."""
        works = {
            "sending heartbeats": self.contact.run(),
            "running for controller": self.candidate.run(),
            "advancing the start counter": self.membership.advance_forever(),
        }
        self._tasks += [in_background(work, doing, self._again) for doing, work in works.items()]

    async def end(self) -> None:
        self.watch.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await close_session(self.session)


class ClusterAgent:
    """The node's agent over all its sessions."""

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
        self._session: Session | None = None  # from join_cluster until start takes it
        self._active: _ActiveSession | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._epochs: Mapping[PartitionKey, int] = {}  # leader epochs known before this session
        self._is_leaving = self._is_fenced = False
        self._offline: frozenset[str] = frozenset()
        self._updating = BackgroundTasks()
        self._view_changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"ClusterAgent(node={self.own.node_id}, member={self.member}, {self.view})"

    @property
    def is_controller(self) -> bool:
        return self._active is not None and self._active.candidate.epoch is not None

    @property
    def contact_at(self) -> float:
        """The time at which the last answered request was sent, in seconds of Clock.boottime."""
        return -inf if self._active is None else self._active.contact.at

    # Start and stop.

    async def join_cluster(self, wanted_id: str = "", directory_id: str = "") -> ClusterIdentity:
        """Read the cluster's identity, or create the cluster. Raises StartRefused.

        `wanted_id` is the setting, `directory_id` the cluster of the data directory, if it was used before.
        """
        self._session = await self._open_session()
        try:
            self._identity = await join(self._session, self.new_id, wanted_id, directory_id)
        except BaseException:
            await self._session.close()
            raise
        return self._identity

    async def start(self, local_epochs: Mapping[PartitionKey, int] | None = None) -> None:
        """Register, and start to notify the listener. `local_epochs` are the leader epochs in the logs. Raises
        StartRefused.
        """
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
        self._keeping = keep_running(self._keep_session, "keeping a session")

    async def stop(self) -> None:
        """Ends the session, so that the partitions fail over at once."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        self._updating.cancel()
        if self._active is not None:
            active, self._active = self._active, None
            with suppress(EngineError, OSError, TimeoutError):
                async with asyncio.timeout(LAST_COUNT_S):
                    await active.membership.advance()  # a snapshot of the running node is an old copy from now on
            await active.end()
        if self._session is not None:
            await self._session.close()

    async def leave(self, deadline_s: float) -> None:
        """Announce that this node leaves. Returns after `deadline_s`, or when no leadership is left to move."""
        self._is_leaving = True
        try:
            async with asyncio.timeout(deadline_s):
                if self._active is not None:
                    await self._active.membership.update(is_leaving=True)
                await self._until(lambda: not self.view.has_transferable_leadership(self.own.node_id))
        except (TimeoutError, EngineError):
            return

    def reregister(self) -> None:
        """Registers with a new broker epoch, because a process of this node died and lost its leader state.

        It opens its partitions again; all processes report the partitions on failed disks again (ReplicaHost).
        """
        self._offline = frozenset()
        if self._active is not None:
            self._updating.start(close_session(self._active.session), "ending the session")

    def distrust(self, topic_id: str, number: int) -> None:
        """Registers as one whose log of this partition is not trusted: it lacks records that were committed."""
        self.own.log_from[partition_name(topic_id, number)] = 0
        self.reregister()

    # Calls of the shards.

    async def read_confirmed_state(self, topic_id: str, number: int) -> VersionedState | None:
        """Returns the state in the store after this call. Raises SessionLost, CommitUnknown, Conflict."""
        return (await self._now.confirmed.answer(block_of(topic_id, number)) or {}).get(number)

    async def propose(self, proposals: Sequence[Proposal]) -> list[Outcome]:
        """Writes partition states; returns an outcome for each. After OutcomeUnknown, later states show the outcome."""
        if self._active is None:
            return [OutcomeUnknown() for _ in proposals]
        return await self._active.watch.blocks.write(proposals)

    def partition_offline(self, topic_id: str, number: int) -> None:
        """Reports that this node's disk has failed a partition, so that another replica is elected."""
        self._offline |= {partition_name(topic_id, number)}
        self._updating.start(self._update_offline(), "reporting offline partitions")

    def partition_online(self, topic_id: str, number: int) -> None:
        """Withdraw that report: the disk has all records again."""
        self._offline -= {partition_name(topic_id, number)}
        self._updating.start(self._update_offline(), "reporting offline partitions")

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        overrides: Mapping[str, object],
        ceiling: Ceiling | None = None,
    ) -> tuple[TopicEntry, bool]:
        """Create a topic and wait until the view has it. Returns it, and whether it is new. Raises TopicExists,
        Invalid.
        """
        topic, is_new = await self._now.topics.create(name, partitions, replication_factor, overrides, ceiling)
        await self.wait_in_view(lambda: self.view.has(topic))
        return topic, is_new

    async def alter_topic(
        self, name: str, overrides: Mapping[str, object], partitions: int | None, ceiling: Ceiling | None = None
    ) -> TopicEntry:
        """Changes settings or the number of partitions. Raises UnknownTopic, InvalidConfig."""
        topic = await self._now.topics.alter(name, overrides, partitions, ceiling)
        await self.wait_in_view(lambda: self.view.has(topic))
        return topic

    async def delete_topic(self, name: str) -> TopicEntry:
        """Delete a topic and wait until the view has dropped it. Raises UnknownTopic."""
        topic = await self._now.topics.delete(name)
        await self.wait_in_view(lambda: self.view.topic_by_id(topic.topic_id) is None)
        return topic

    async def find_topic(self, name: str) -> TopicEntry | None:
        return await self._now.topics.find(name)

    async def is_deleted(self, topic_id: str) -> bool:
        """True if a topic that is not in the store has a tombstone; otherwise its files are set aside, not deleted."""
        return await self._now.topics.is_deleted(topic_id)

    @property
    def operations(self) -> Operations:
        """The administrative operations. Raises SessionLost without a session."""
        return self._now.operations

    # ViewListener: forwards changes to the listener and to the controller.

    def on_nodes(self, view: ClusterView) -> None:
        self.listener.on_nodes(view)
        if self._active is not None:
            self._check_registration(self._active, view)
            self._active.candidate.on_nodes()
        self._view_changed.set()

    def _check_registration(self, active: _ActiveSession, view: ClusterView) -> None:
        """The own registration may vanish or carry an older nonce while its session is alive: versions of a key that
        was created again begin at 0, so a late request of an earlier session may hit the new key. No other event
        reports this. Views older than the own registration are skipped.
        """
        node = view.nodes.get(self.own.node_id)
        if self.member is None:
            return
        is_as_new = node is not None and node.broker_epoch >= self.member.broker_epoch
        if node is not None and is_as_new and node.nonce == active.membership.nonce:
            active.has_seen_own = True
        elif active.has_seen_own or is_as_new:
            log.error(
                "this node's registration was removed; it registers again", extra={"was": self.member.broker_epoch}
            )
            active.has_seen_own = False
            self.reregister()

    def on_topics(self, changed: list[TopicEntry], deleted: list[TopicEntry]) -> None:
        self.listener.on_topics(changed, deleted)
        if self._active is not None:
            self._active.candidate.on_topics(changed, deleted)
        self._view_changed.set()

    def on_states(self, changed: list[StateChange]) -> None:
        self.listener.on_states(changed)
        if self._active is not None:
            self._active.candidate.on_states(changed)
        self._view_changed.set()

    def on_cluster(self, found: Versioned | None) -> None:
        """Take over new secrets and a raised feature level.

        A key that is gone, or of another cluster, is found by the next registration.
        """
        identity = None if found is None else identity_from_bytes(CLUSTER, found.value)
        known = self._identity
        if identity is not None and known is not None and identity != known and identity.has_secret_of(known):
            self._use_identity(identity)

    def _use_identity(self, identity: ClusterIdentity) -> None:
        self._identity = identity
        self.view.feature_level = identity.level
        self.listener.on_identity(identity)

    def on_broken(self, error: Exception) -> None:
        """Ends this session: the store has data that this version does not understand and must not act on."""
        log.error("the coordination store cannot be read", extra={"reason": str(error) or repr(error)})
        self.reregister()

    # Sessions.

    @property
    def session(self) -> Session:
        """The session, for other keys of the store. Raises SessionLost without one."""
        return self._now.session

    @property
    def _now(self) -> _ActiveSession:
        if self._active is None:
            raise SessionLost("there is no session with the coordination store", hint="try again")
        return self._active

    async def _begin(self, session: Session) -> None:
        """Raises StartRefused, SessionLost, Corrupt. The view is filled even if the registration is rejected."""
        self._use_identity(await check_same_cluster(session, self._identity))
        active = _ActiveSession(self, session)
        try:
            await active.watch.load()
            check_not_older(self.view, self._epochs)
            member = await active.membership.register(self._is_leaving, self._offline)
        except BaseException:
            await active.end()
            raise
        self._active, self.member = active, member
        self.listener.on_registered(member)
        self.listener.on_contact(active.contact.at)
        active.watch.begin()
        active.begin()

    async def _keep_session(self) -> None:
        """Replaces a lost session by a new one, until this process is fenced."""
        while not self._is_fenced:
            if self._active is not None:
                await wait_lost(self._active.session)
                await self._end_session(self._active)
            failures = 0
            while self._active is None and not self._is_fenced:
                await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)] * (0.5 + self._random.random()))
                failures += 1
                await self._retry()

    async def _end_session(self, active: _ActiveSession) -> None:
        log.warning("the session with the coordination store has ended; this node registers again")
        self._active, self.member = None, None
        self._epochs = {key: versioned.state.leader_epoch for key, versioned in self.view.states.items()}
        try:
            self.listener.on_session_lost()
        finally:
            await active.end()

    async def _retry(self) -> None:
        """On any error, logs it and leaves the next try to the caller: no failure may require a restart of the node."""
        try:
            session = await self._open_session()
        except Exception as error:
            warn_of("no session with the coordination store", error)
            return
        try:
            await self._begin(session)
        except Fenced as error:
            self._is_fenced = True
            await close_session(session)
            self.listener.on_fenced(error)
        except Exception as error:  # an OSError too: a full disk rejects the registration state
            warn_of("this node cannot register", error)
            await close_session(session)

    async def _update_offline(self) -> None:
        if self._active is not None:
            try:
                await self._active.membership.update(offline=self._offline)
            except EngineError:
                return  # the next registration includes it

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._view_changed.clear()
            await self._view_changed.wait()

    async def wait_in_view(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(VIEW_TIMEOUT_S):
                await self._until(condition)
        except TimeoutError:
            return  # the commit is done; reads on this node may be stale until the view has it
