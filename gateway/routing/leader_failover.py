"""Hands batches to leaders that may move: retries what was surely not stored, until its timeout.

Only in a cluster; a standalone node appends without this file (gateway/produce/appending.py). So a failover is a pause
for producers, not an error. Invariants: (1) the batches that wait here for a partition are handed over in the order of
their arrival, so those of one connection keep their order, and no later batch overtakes them; (2) a batch that may be
stored already is retried only if the leader would recognise it, by a sequence, a key or its source; (3) the answer to
such a batch is never a later error that claims that nothing was stored; (4) while no leader accepts batches, one call
for each partition asks for it, however many batches wait.
Not guaranteed: the order of two batches under way, if the leader rejected the first and accepted the second, having
become leader in between, or if their acks differ. A batch with a sequence is rejected there, and retried behind it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from engine.errors import Draining, EngineError
from engine.format import batch as record_batch
from engine.producers.appends import AppendConditions, Appended
from engine.runtime.loop_waits import loop_waits
from engine.runtime.tasks import in_background, start_task
from gateway.links.link import LinkDown, LinkLost
from gateway.routing.peers import Peers, RemoteLeader
from replication.errors import (
    LeadershipLost,
    NoLeader,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
)
from replication.replica.acks import Acks
from replication.replica.replicas import AnyReplica

CHECK_APPEND_S = 5.0  # for the answer of a leader that is asked whether it would append
PAUSE_S = 0.02  # before the second question; a change of leaders ends a pause early
PAUSE_S_MAX = 0.25

# Errors after which a retry may succeed elsewhere or soon. A node that drains moves its leaderships.
_TRANSIENT = {kind.code for kind in (NotLeader, NoLeader, NotEnoughReplicas, OffsetNotAvailable, Draining)}
_AMBIGUOUS = {kind.code for kind in (LeadershipLost, NotEnoughReplicasAfterAppend)}

AnyLeader = AnyReplica | RemoteLeader


def is_transient(error: EngineError) -> bool:
    """Returns whether nothing was done because leadership moves, so that this process retries."""
    return isinstance(error, LinkDown) or (error.code in _TRANSIENT and error.no_side_effects)


def is_ambiguous(error: EngineError) -> bool:
    """Returns whether the outcome is unknown because leadership moved."""
    return isinstance(error, LinkLost) or error.code in _AMBIGUOUS


@dataclass(slots=True, eq=False)
class PendingProduce:
    """A batch for one partition, and the deadline (loop time) for handing it over."""

    topic_id: str
    partition: int
    batch: bytes | bytearray
    acks: Acks
    conditions: AppendConditions | None
    deadline: float
    find_leader: Callable[[], AnyLeader]
    sequence: int = 0

    @property
    def is_idempotent(self) -> bool:
        """True if a leader that has the batch already recognises it. An expected end does not help: it has moved."""
        conditions = self.conditions
        has_entry = conditions is not None and (conditions.key is not None or conditions.source is not None)
        return has_entry or record_batch.read_header(self.batch).producer_id >= 0


class _Entry(NamedTuple):
    """A batch in its queue. The future's result is the leader's append, to be awaited."""

    pending: PendingProduce
    sent: asyncio.Future[Awaitable[Appended | None]]


@dataclass(slots=True)
class _PartitionQueue:
    """The batches that wait for the leader of one partition, by their sequence numbers."""

    entries: dict[int, _Entry] = field(default_factory=dict)
    retrying: asyncio.Task[None] | None = None


_QueueKey = tuple[str, int, bool]


class LeaderFailover:
    """The queues of all partitions whose leaders reject batches now: usually none."""

    def __init__(self, peers: Peers, random: Random) -> None:
        self.retries = 0
        self._peers = peers
        self._random = random
        self._sequences = itertools.count(1)
        self._queues: dict[_QueueKey, _PartitionQueue] = {}

    def __repr__(self) -> str:
        return f"LeaderFailover(lines={len(self._queues)}, repeats={self.retries})"

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yields name, text and value of each gauge."""
        waiting = sum(len(queue.entries) for queue in self._queues.values())
        yield "penstock_failover_waiting_batches", "Batches that wait for a leader election", waiting
        text = "Retries of batches after a leader change, or because too few replicas were in sync"
        yield "penstock_failover_retries_total", text, self.retries

    def begin(self, pending: PendingProduce) -> Awaitable[Appended | None]:
        """Hand the batch over now, or queue it; await the outcome. Raises errors that a retry would not change."""
        pending.sequence = next(self._sequences)
        if _queue_key(pending) in self._queues:
            return self._deliver(pending, self._enqueue(pending), None)
        try:
            return self._deliver(pending, None, _send(pending))
        except EngineError as error:
            if not is_transient(error):
                raise
            return self._deliver(pending, self._enqueue(pending), None, error)

    async def _deliver(
        self,
        pending: PendingProduce,
        entry: _Entry | None,
        waiting: Awaitable[Appended | None] | None,
        rejection: EngineError | None = None,
    ) -> Appended | None:
        ambiguous: EngineError | None = None
        while True:
            if waiting is None:
                waiting = await self._wait_turn(entry or self._enqueue(pending), ambiguous or rejection)
            try:
                return await waiting
            except EngineError as error:
                if is_ambiguous(error):
                    ambiguous = error
                    if not pending.is_idempotent:
                        raise
                elif not is_transient(error):
                    raise (ambiguous or error) from None
                entry, waiting, rejection = self._enqueue(pending), None, error

    def _enqueue(self, pending: PendingProduce) -> _Entry:
        self.retries += 1
        which = _queue_key(pending)
        queue = self._queues.setdefault(which, _PartitionQueue())
        entry = _Entry(pending, asyncio.get_running_loop().create_future())
        queue.entries[pending.sequence] = entry
        if queue.retrying is None:
            queue.retrying = in_background(self._retry_until_accepted(which, queue), "asking a leader")
        return entry

    async def _wait_turn(self, entry: _Entry, rejection: EngineError | None) -> Awaitable[Appended | None]:
        """Wait until the leader accepts batches again, and those with smaller numbers have been handed over."""
        pending, sent = entry
        try:
            return await loop_waits().deadlines.done_by(pending.deadline, sent)
        except TimeoutError:
            raise rejection or NoLeader(f"{pending.topic_id}/{pending.partition}: no leader took it in time") from None
        finally:
            sent.cancel()
            queue = self._queues.get(_queue_key(pending))
            if queue is not None and queue.entries.get(pending.sequence) is entry:
                del queue.entries[pending.sequence]

    async def _retry_until_accepted(self, which: _QueueKey, queue: _PartitionQueue) -> None:
        """Ask the leader repeatedly, and hand over once it accepts batches."""
        pause_s = PAUSE_S
        try:
            while queue.entries:
                have_changed = await self._peers.wait_leader_change(self._random.uniform(pause_s / 2, pause_s))
                pause_s = (
                    PAUSE_S if have_changed else min(pause_s * 2, PAUSE_S_MAX)
                )  # a new leader starts within moments
                if queue.entries and await self._is_willing(next(iter(queue.entries.values())).pending):
                    _send_all(queue)
        finally:
            del self._queues[which]

    async def _is_willing(self, pending: PendingProduce) -> bool:
        try:
            leader = pending.find_leader()
            if isinstance(leader, RemoteLeader):
                await leader.check_append(pending.acks, CHECK_APPEND_S)
            else:
                leader.check_append(pending.acks)
        except EngineError as error:
            return not (is_transient(error) or is_ambiguous(error))  # each batch receives any other error itself
        return True


def _queue_key(pending: PendingProduce) -> _QueueKey:
    """Returns the queue of a batch. acks=all has its own: only those batches wait for in-sync replicas."""
    return pending.topic_id, pending.partition, pending.acks is Acks.ALL


def _send_all(queue: _PartitionQueue) -> None:
    """Hands over without an await, so that no other batch comes in between. Stops at the first that is rejected."""
    for sequence, entry in sorted(queue.entries.items()):
        if not entry.sent.done():
            try:
                entry.sent.set_result(_watched(_send(entry.pending)))
            except EngineError as error:
                if is_transient(error):
                    return
                entry.sent.set_exception(error)
        del queue.entries[sequence]


def _send(pending: PendingProduce) -> Awaitable[Appended | None]:
    leader = pending.find_leader()
    if pending.acks is Acks.NONE:
        leader.append_nowait(pending.batch, pending.conditions)
        return _nothing()
    left_ms = max(1, round((pending.deadline - asyncio.get_running_loop().time()) * 1000))
    return leader.produce(pending.batch, pending.acks, left_ms, pending.conditions)


async def _nothing() -> None:
    """Returns at once: acks=0 has no outcome."""


def _watched(waiting: Awaitable[Appended | None]) -> asyncio.Future[Appended | None]:
    """Continues when the client that would await it has left."""
    return start_task(waiting)
