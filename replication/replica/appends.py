"""Takes the appends of one partition, and waits for the acknowledgement that their producer asked for.

A pending append has no task: the group commit, the high watermark, or the deadline ends its wait in its own call. The
replica decides which position an acknowledgement waits for: here on a standalone node, in replica.py in a cluster.
Invariants: the wait ends once; a timeout or a cancellation ends the wait, and the append continues; a request whose
records are committed, or that repeats committed ones, has its positions whatever ends the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from engine.errors import EngineError
from engine.partition.committer import Committer
from engine.partition.partition import Partition
from engine.partition.spool import Spool
from engine.producers.appends import AppendConditions, Appended, AppendedApart, QueuedBatch
from engine.runtime.loop_waits import Bucket, loop_waits
from engine.runtime.pending import Pending
from replication.cores.leader import Leader
from replication.replica.acks import Acks, retrieve_exception
from replication.replica.append_errors import ack_timeout

AppendOutcome = Appended | AppendedApart


class AppendingReplica:
    """Takes the appends of one partition, as on a standalone node, which accepts each that the spool has room for.

    replica.py overrides what differs in a cluster: whether an append is accepted, and what ends a wait.
    """

    judges_requests = False
    kept_from: int | None = None  # where the log of a leader ends that is not followed (cores/follower.KeepCommitted)

    def __init__(self, partition: Partition, committer: Committer, spool: Spool) -> None:
        self.partition = partition
        self._committer = committer
        self._spool = spool

    @property
    def core(self) -> Leader | None:
        """The core of the present leadership. None: the replica does not lead, or on a standalone node."""
        return None

    def check_append(self, acks: Acks) -> None:
        """Checks whether an append would be accepted now. Raises SpoolFull."""
        if self._spool.is_full:
            self._spool.check(self.partition)

    def append(
        self, batch: bytes | bytearray, acks: Acks, conditions: AppendConditions | None = None
    ) -> asyncio.Future[Appended]:
        """Queues a batch now, so that calls keep their order. The future returns its positions once it is written.

        Raises the errors of `check_append`, and the error of an offline partition, with nothing queued.
        """
        self.check_append(acks)
        wants_sync = acks is Acks.ALL and self.partition.settings.durability == "group"
        return self._committer.append(self.partition, batch, conditions, wants_sync=wants_sync)

    def produce(
        self, batch: bytes | bytearray, acks: Acks, timeout_ms: int, conditions: AppendConditions | None = None
    ) -> Pending[AppendOutcome | None]:
        """Queues a batch now, as `produce_all` does."""
        return self.produce_all([(batch, conditions, None)], acks, timeout_ms)[0]

    def produce_all(
        self, batches: Sequence[QueuedBatch], acks: Acks, timeout_ms: int
    ) -> Sequence[Pending[AppendOutcome | None]]:
        """Queues batches now, in their order. The outcomes come with the acknowledgement; None at once with acks=0.

        Raises the errors of `check_append`, and the error of an offline partition, with nothing queued.
        """
        self.check_append(acks)
        if acks is Acks.NONE:
            return [self._queue_unacknowledged(batch, conditions) for batch, conditions, _ in batches]
        wants_sync = acks is Acks.ALL and self.partition.settings.durability == "group"
        written = self._committer.append_all(self.partition, batches, wants_sync=wants_sync)
        return [PendingAppend(self, future, acks, timeout_ms, self.core) for future in written]

    def acknowledge(self, written: asyncio.Future[Appended], acks: Acks, timeout_ms: int) -> PendingAppend:
        """Begins the wait for the acknowledgement of a batch that `append` has queued."""
        return PendingAppend(self, written, acks, timeout_ms, self.core)

    def _queue_unacknowledged(
        self, batch: bytes | bytearray, conditions: AppendConditions | None
    ) -> Pending[AppendOutcome | None]:
        written = self._committer.append(self.partition, batch, conditions, wants_sync=False)
        written.add_done_callback(retrieve_exception)
        queued: Pending[AppendOutcome | None] = Pending()
        queued.complete(None)
        return queued

    # For pending appends

    def on_written(self, pending: PendingAppend) -> None:
        pending.wait_committed() if pending.acks is Acks.ALL else pending.finish()

    def on_committed(self, pending: PendingAppend) -> None:
        pending.finish()


class PendingAppend(Pending["AppendOutcome | None"]):
    """`leader` is the core that led when the batch was queued; None: on a standalone node.

    `outcome`: the positions or the error, once the batch is written or rejected. Raised or received errors: that of the
    append (nothing is stored), AckTimeout or those of the replica (the records may be stored).
    """

    __slots__ = ("_bucket", "_end", "_replica", "_timeout_ms", "_written", "acks", "leader", "outcome")

    def __init__(
        self,
        replica: AppendingReplica,
        written: asyncio.Future[Any],
        acks: Acks,
        timeout_ms: int,
        leader: Leader | None = None,
    ) -> None:
        self.is_over, self._receive = False, None  # without the constructor above, which has a frame
        self.acks = acks
        self.leader = leader
        self.outcome: AppendOutcome | BaseException | None = None
        self._replica = replica
        self._written = written
        self._timeout_ms = timeout_ms
        self._end = -1  # the position that is waited for
        loop = written.get_loop()
        deadline = loop.time() + timeout_ms / 1000
        self._bucket: Bucket = loop_waits(loop).deadlines.put(deadline, self, PendingAppend._expire)
        written.add_done_callback(self._on_written)

    def wait_committed(self) -> None:
        """Continues once the high watermark has reached the end of the records."""
        acks, end = self._replica.partition.watermark.acks, _end(self.outcome)
        if acks.position >= end:
            self._replica.on_committed(self)
        elif acks.failure is not None:
            self.set_exception(acks.failure)
        else:
            self._end = end
            acks.add(end, self)

    def stop_deadline(self) -> None:
        """Removes the deadline: the replica ends the wait in its own time."""
        self._bucket.pop(self, None)

    def finish(self) -> None:
        """Ends the wait with the outcome."""
        if not self.is_over:
            self._end_waits()
            assert self.outcome is not None
            self.complete(self.outcome)

    def fail(self, error: BaseException, committed_end: int = 0) -> None:
        """Ends the wait. The error is the outcome of requests whose records end behind `committed_end`."""
        if self.outcome is not None:
            self.outcome = _or_error(committed_end, self.outcome, error)
        else:
            self.outcome = error
        self.finish()

    def cancel(self) -> None:
        """Ends the wait. The append continues."""
        if not self.is_over:
            self._end_waits()
        super().cancel()

    # As a wait for the high watermark

    def done(self) -> bool:
        return self.is_over

    def set_result(self, position: int, /) -> None:
        self._end = -1
        self._replica.on_committed(self)

    def set_exception(self, error: Exception, /) -> None:
        self._end = -1
        self.fail(error, self._replica.partition.watermark.position)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._written.get_loop()

    # Within

    def _on_written(self, written: asyncio.Future[Any]) -> None:
        if written.cancelled():
            self.outcome = asyncio.CancelledError()
        else:
            error = written.exception()
            self.outcome = written.result() if error is None else error
        if not self.is_over:
            self._replica.on_written(self)

    def _expire(self) -> None:
        error = ack_timeout(self._replica.partition.name, self.acks.value, self._timeout_ms)
        self.fail(error, self._replica.partition.watermark.position)

    def _end_waits(self) -> None:
        self._bucket.pop(self, None)
        if self._end >= 0:
            self._replica.partition.watermark.acks.give_up(self._end, self)


def _end(outcome: AppendOutcome | BaseException | None) -> int:
    """Returns the offset behind the records of an outcome; 0 of an error."""
    if isinstance(outcome, AppendedApart):
        return max(map(_end, outcome.outcomes))
    return outcome.end if isinstance(outcome, Appended) else 0


def _or_error(
    position: int, outcome: AppendOutcome | BaseException, error: BaseException
) -> AppendOutcome | BaseException:
    """Returns the outcome, or the error if its records end behind a position."""
    if isinstance(outcome, AppendedApart):
        assert isinstance(error, EngineError)
        return AppendedApart([error if _end(part) > position else part for part in outcome.outcomes])
    return error if _end(outcome) > position else outcome
