"""Hands batches to leaders that may move: retries what was surely not stored, until its timeout.

Only in a cluster; a standalone node appends without this file (gateway/produce/queue.py). So a failover is a pause
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple, Protocol

from engine.errors import Draining, EngineError
from engine.format import batch as record_batch
from engine.producers.appends import AppendConditions, QueuedBatch
from engine.runtime.loop_waits import loop_waits
from engine.runtime.pending import Pending
from engine.runtime.tasks import in_background
from gateway.links.link import LinkDown, LinkLost
from gateway.routing.peers import Peers
from gateway.routing.remote_leader import RemoteLeader
from replication.errors import (
    LeadershipLost,
    NoLeader,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
)
from replication.replica.acks import Acks
from replication.replica.appends import AppendOutcome
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


class Leader(Protocol):
    """The leader of a partition: here, in another process, or with retries while it moves.

    `judges_requests`: it takes batches of several requests with keys or sequences, and judges each request.
    """

    @property
    def judges_requests(self) -> bool: ...

    def produce_all(
        self, batches: Sequence[QueuedBatch], acks: Acks, timeout_ms: int
    ) -> Sequence[Pending[AppendOutcome | None]]:
        """Hands batches over, in their order. Each outcome is None with acks=0.

        Raises EngineError with nothing handed over.
        """


class FailoverAppend(Pending["AppendOutcome | None"]):
    """A batch for one partition, and the deadline (loop time) for handing it over."""

    __slots__ = ("acks", "batch", "conditions", "deadline", "find_leader", "partition", "sequence", "topic_id")

    def __init__(
        self,
        topic_id: str,
        partition: int,
        batch: bytes | bytearray,
        acks: Acks,
        conditions: AppendConditions | None,
        deadline: float,
        find_leader: Callable[[], AnyLeader],
    ) -> None:
        super().__init__()
        self.topic_id = topic_id
        self.partition = partition
        self.batch = batch
        self.acks = acks
        self.conditions = conditions
        self.deadline = deadline
        self.find_leader = find_leader
        self.sequence = 0

    @property
    def is_idempotent(self) -> bool:
        """True if a leader that has the batch already recognises it. An expected end does not help: it has moved."""
        conditions = self.conditions
        has_entry = conditions is not None and (conditions.key is not None or conditions.source is not None)
        return has_entry or record_batch.read_header(self.batch).producer_id >= 0


class FailoverLeader(NamedTuple):
    """A partition's leader as a producer of a cluster sees it: a change of leaders is a pause."""

    failover: LeaderFailover
    topic_id: str
    partition: int
    find_leader: Callable[[], AnyLeader]
    judges_requests: bool = False

    def produce_all(
        self, batches: Sequence[QueuedBatch], acks: Acks, timeout_ms: int
    ) -> list[Pending[AppendOutcome | None]]:
        """Hands batches over, in their order, now or later. Raises nothing."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        appends: list[Pending[AppendOutcome | None]] = []
        for batch, conditions, _ in batches:
            which = (self.topic_id, self.partition)
            append = FailoverAppend(*which, batch, acks, conditions, deadline, self.find_leader)
            self.failover.begin(append)
            appends.append(append)
        return appends


class _Entry(NamedTuple):
    """A batch in its queue. The future's result is the leader's append, to be awaited."""

    append: FailoverAppend
    sent: asyncio.Future[Pending[AppendOutcome | None]]


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

    def begin(self, append: FailoverAppend) -> None:
        """Hands the batch over now, or queues it."""
        append.sequence = next(self._sequences)
        if _queue_key(append) in self._queues:
            self._retry(append, None, None)
            return
        try:
            sent = _send(append)
        except EngineError as error:
            self._on_outcome(append, error)
        else:
            sent.then(partial(self._on_outcome, append))

    def _on_outcome(self, append: FailoverAppend, outcome: AppendOutcome | BaseException | None) -> None:
        """Ends the append, or retries it if its leader has moved."""
        if not isinstance(outcome, EngineError):
            append.complete(outcome)
        elif is_ambiguous(outcome) and append.is_idempotent:
            self._retry(append, outcome, outcome)
        elif is_transient(outcome) and not is_ambiguous(outcome):
            self._retry(append, outcome, None)
        else:
            append.complete(outcome)

    def _retry(self, append: FailoverAppend, rejection: EngineError | None, ambiguous: EngineError | None) -> None:
        """Queues a batch. `rejection`: its last error; `ambiguous`: the last one after which it may be stored."""
        delivery = self._deliver(append, self._enqueue(append), rejection, ambiguous)
        in_background(delivery, "handing a batch to a new leader")

    async def _deliver(
        self, append: FailoverAppend, entry: _Entry, rejection: EngineError | None, ambiguous: EngineError | None
    ) -> None:
        while True:
            try:
                sent = await self._wait_turn(entry, ambiguous or rejection)
            except EngineError as error:
                append.complete(ambiguous or error)
                return
            try:
                append.complete(await sent)
                return
            except EngineError as error:
                if is_ambiguous(error):
                    ambiguous = error
                if not (is_transient(error) or (is_ambiguous(error) and append.is_idempotent)):
                    append.complete(ambiguous or error)
                    return
                entry, rejection = self._enqueue(append), error
            except BaseException as error:  # a bug, or the process stops: the producer must not wait for it
                append.complete(ambiguous or error)
                raise

    def _enqueue(self, append: FailoverAppend) -> _Entry:
        self.retries += 1
        which = _queue_key(append)
        queue = self._queues.setdefault(which, _PartitionQueue())
        entry = _Entry(append, asyncio.get_running_loop().create_future())
        queue.entries[append.sequence] = entry
        if queue.retrying is None:
            queue.retrying = in_background(self._retry_until_accepted(which, queue), "asking a leader")
        return entry

    async def _wait_turn(self, entry: _Entry, rejection: EngineError | None) -> Pending[AppendOutcome | None]:
        """Waits until the leader accepts batches again, and those with smaller numbers have been handed over."""
        append, sent = entry
        try:
            return await loop_waits().deadlines.wait_until(append.deadline, sent)
        except TimeoutError:
            raise rejection or NoLeader(f"{append.topic_id}/{append.partition}: no leader took it in time") from None
        finally:
            sent.cancel()
            queue = self._queues.get(_queue_key(append))
            if queue is not None and queue.entries.get(append.sequence) is entry:
                del queue.entries[append.sequence]

    async def _retry_until_accepted(self, which: _QueueKey, queue: _PartitionQueue) -> None:
        """Asks the leader repeatedly, and hands over once it accepts batches."""
        pause_s = PAUSE_S
        try:
            while queue.entries:
                have_changed = await self._peers.wait_leader_change(self._random.uniform(pause_s / 2, pause_s))
                pause_s = (
                    PAUSE_S if have_changed else min(pause_s * 2, PAUSE_S_MAX)
                )  # a new leader starts within moments
                if queue.entries and await self._is_willing(next(iter(queue.entries.values())).append):
                    _send_all(queue)
        finally:
            del self._queues[which]

    async def _is_willing(self, append: FailoverAppend) -> bool:
        try:
            leader = append.find_leader()
            if isinstance(leader, RemoteLeader):
                await leader.check_append(append.acks, CHECK_APPEND_S)
            else:
                leader.check_append(append.acks)
        except EngineError as error:
            return not (is_transient(error) or is_ambiguous(error))  # each batch receives any other error itself
        return True


def _queue_key(append: FailoverAppend) -> _QueueKey:
    """Returns the queue of a batch. acks=all has its own: only those batches wait for in-sync replicas."""
    return append.topic_id, append.partition, append.acks is Acks.ALL


def _send_all(queue: _PartitionQueue) -> None:
    """Hands over without an await, so that no other batch comes in between. Stops at the first that is rejected."""
    for sequence, entry in sorted(queue.entries.items()):
        if not entry.sent.done():
            try:
                entry.sent.set_result(_send(entry.append))
            except EngineError as error:
                if is_transient(error):
                    return
                entry.sent.set_exception(error)
        del queue.entries[sequence]


def _send(append: FailoverAppend) -> Pending[AppendOutcome | None]:
    left_ms = max(1, round((append.deadline - asyncio.get_running_loop().time()) * 1000))
    return append.find_leader().produce(append.batch, append.acks, left_ms, append.conditions)
