"""The driver of the controller core: every node is a candidate, one holds the latch and writes the core's decisions.

The latch epoch is checked in every write, so that a deposed controller can write nothing. A new controller core gets
the whole view, so no change is missed between two controllers. Also deletes what interrupted topic creations and
deletions have left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from engine.errors import StorageFailed, StorageFull, TooManyOpenFiles
from engine.runtime.clock import Clock
from replication.cluster.keys import CONTROLLER, DELETED, block_key, deleted_key, partition_key, partition_name
from replication.cluster.partition_state_store import ControllerFenced, StateBlocks
from replication.cluster.values import (
    Confirmed,
    OutcomeUnknown,
    Proposal,
    Rejected,
    TopicEntry,
    deleted_ms_from_bytes,
)
from replication.cluster.view import ClusterView, StateChange
from replication.coordination.interface import CommitUnknown, Conflict, Delete, Session, SessionLost
from replication.coordination.latch import Latch
from replication.cores.controller import Controller, Write, is_unbalanced
from replication.cores.partition_state import VersionedState

FAILED_S = 2.0  # after a disk error
SWEEP_S = 600.0  # a topic creation takes far less
TOMBSTONE_MS = 30 * 24 * 3600 * 1000  # a node that was away for longer sets the topic's files aside

log = logging.getLogger("penstock.controller")


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """When to run preferred leader elections: check interval, and the imbalance percentage that triggers one."""

    check_ms: int = 60_000
    imbalance_percent: int = 10


class ControllerCandidate:
    """A candidate for controller in one session; the controller while it holds the latch."""

    def __init__(
        self,
        session: Session,
        view: ClusterView,
        blocks: StateBlocks,
        node_id: int,
        rebalancing: Rebalancing,
        clock: Clock,
    ) -> None:
        self._session = session
        self._view = view
        self._blocks = blocks
        self._rebalancing = rebalancing
        self._clock = clock
        self._latch = Latch(session, CONTROLLER, str(node_id))
        self._core: Controller | None = None
        self._to_write: list[Write] = []
        self._queued_at = 0.0  # when the first of them was
        self._woken = asyncio.Event()
        self._orphans: set[str] = set()

    def __repr__(self) -> str:
        return f"ControllerCandidate({self._latch}, to_write={len(self._to_write)})"

    @property
    def epoch(self) -> int | None:
        """The controller epoch; None while this node is not the controller."""
        return None if self._core is None else self._core.controller_epoch

    async def run(self) -> None:
        """Runs for controller again and again until the session is lost."""
        while True:
            try:
                await self._latch.release()  # held by an earlier session or a commit whose answer was lost
                epoch = await self._latch.acquire()
                await self._term(epoch)
            except SessionLost:
                return
            except (Conflict, CommitUnknown, ControllerFenced) as error:
                log.info("this node is no longer the controller", extra={"reason": str(error)})
            except (
                StorageFull,
                StorageFailed,
                TooManyOpenFiles,
            ) as error:  # embedded
                log.error("the controller cannot write", extra={"reason": str(error)})
                self._core = None
                await asyncio.sleep(FAILED_S)
            finally:
                self._core, self._to_write = None, []

    # Changes of the view.

    def on_nodes(self) -> None:
        if self._core is not None:
            self._queue_writes(self._core.on_nodes(self._view.registrations))

    def on_topics(self, changed: Iterable[TopicEntry], deleted: Iterable[TopicEntry]) -> None:
        """Checks the topics' partitions again: other settings may require other states."""
        if self._core is None:
            return
        for topic in deleted:
            for number in range(topic.partitions):
                self._core.on_deleted(partition_name(topic.topic_id, number))
        for topic in changed:
            self.on_states(
                [(topic.topic_id, number, versioned) for number, versioned in self._view.partitions_of(topic)]
            )

    def on_states(self, changed: Iterable[StateChange]) -> None:
        for topic_id, number, versioned in changed:
            self._evaluate(topic_id, number, versioned)

    def _evaluate(self, topic_id: str, number: int, versioned: VersionedState) -> None:
        topic = self._view.topic_by_id(topic_id)
        if self._core is not None and topic is not None:
            self._queue_writes(self._core.on_partition(partition_name(topic_id, number), versioned, topic.rules))

    def _queue_writes(self, writes: list[Write]) -> None:
        if writes:
            if not self._to_write:
                self._queued_at = self._clock.monotonic()
            self._to_write += writes
            self._woken.set()

    # One controller epoch.

    async def _term(self, epoch: int) -> None:
        log.info("this node is the controller", extra={"controller_epoch": epoch})
        self._core = Controller(epoch)
        self._queue_writes(self._core.on_nodes(self._view.registrations))
        for topic in self._view.topics.values():
            self.on_topics([topic], [])
        loop = asyncio.get_running_loop()
        check_s = self._rebalancing.check_ms / 1000
        rebalance_at, sweep_at = loop.time() + check_s, loop.time() + SWEEP_S
        while True:
            await self._wait_until(min(rebalance_at, sweep_at))
            await self._write()
            if loop.time() >= rebalance_at:
                rebalance_at = loop.time() + check_s
                if self._is_unbalanced():
                    self._queue_writes(self._core.moves_to_preferred())
            if loop.time() >= sweep_at:
                sweep_at = loop.time() + SWEEP_S
                await self._sweep()

    async def _wait_until(self, at: float) -> None:
        try:
            async with asyncio.timeout_at(at):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    async def _write(self) -> None:
        writes, self._to_write = self._to_write, []
        if not writes:
            return
        assert self._core is not None
        proposals = [Proposal(*partition_key(w.partition), w.partition_epoch, w.state) for w in writes]
        for proposal in proposals:
            self._log_unclean(proposal)
        queued_at, elections = self._queued_at, [self._is_election(proposal) for proposal in proposals]
        outcomes = await self._blocks.write(proposals, self._latch.fence())
        passed_s = self._clock.monotonic() - queued_at
        for write, proposal, outcome, is_election in zip(writes, proposals, outcomes, elections, strict=True):
            match outcome:
                case Confirmed(epoch):
                    if is_election:
                        self._view.election_times.observe(passed_s)
                    self._evaluate(proposal.topic_id, proposal.number, VersionedState(write.state, epoch))
                case Rejected(None):
                    self._core.on_deleted(write.partition)
                case Rejected(newer) if newer is not None:
                    self._core.on_rejected(write.partition)
                    self._evaluate(proposal.topic_id, proposal.number, newer)
                case OutcomeUnknown():
                    raise SessionLost("the session ended during a write")

    def _is_election(self, proposal: Proposal) -> bool:
        before, state = self._view.states.get((proposal.topic_id, proposal.number)), proposal.state
        return before is not None and state.leader is not None and state.leader_epoch > before.state.leader_epoch

    def _log_unclean(self, proposal: Proposal) -> None:
        before = self._view.states.get((proposal.topic_id, proposal.number))
        unclean = 0 if before is None else before.state.unclean_elections
        if proposal.state.unclean_elections > unclean:
            fields = {"partition": partition_name(proposal.topic_id, proposal.number), "leader": proposal.state.leader}
            log.warning("unclean election: committed records may be lost", extra=fields)

    def _is_unbalanced(self) -> bool:
        states = (versioned.state for versioned in self._view.states.values())
        return is_unbalanced(states, self._view.nodes, self._rebalancing.imbalance_percent)

    # Orphans.

    async def _sweep(self) -> None:
        """Deletes partition states without a topic, and expired tombstones."""
        strangers = {topic_id for topic_id in self._blocks.topic_ids() if self._view.topic_by_id(topic_id) is None}
        for topic_id in sorted(strangers & self._orphans):  # already orphaned at the last sweep
            for block, version in self._blocks.versions_of(topic_id).items():
                await self._session.commit(self._latch.fence(), Delete(block_key(block), version))
        self._orphans = strangers
        for topic_id in await self._session.children(DELETED):
            tombstone = await self._session.get(deleted_key(topic_id))
            if tombstone is not None and self._is_old(deleted_key(topic_id), tombstone.value):
                await self._session.commit(self._latch.fence(), Delete(deleted_key(topic_id), tombstone.version))

    def _is_old(self, key: str, value: bytes) -> bool:
        return self._clock.now_ms() - deleted_ms_from_bytes(key, value) > TOMBSTONE_MS
