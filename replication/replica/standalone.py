"""Replicas of a standalone node: each is the only replica of its partition, and leads it permanently.

Has no leader core: without followers there is nothing to count, and the partition commits by itself what it has stored
(engine/partition/partition.py). A node of a cluster has replica.py and replica_host.py instead, which answer the same
calls; both kinds queue appends as `AppendingReplica` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from engine.errors import EngineError
from engine.partition.committer import Committer
from engine.partition.partition import Partition
from engine.partition.spool import Spool
from engine.producers.appends import AppendConditions, Appended, AppendedApart, QueuedBatch
from engine.runtime.loop_waits import Bucket, loop_waits
from engine.shard.served_topics import Topic
from engine.shard.shard import Shard
from replication.cores.role import Lead
from replication.replica.acks import Acks, retrieve_exception
from replication.replica.append_errors import ack_timeout, not_leading

AppendOutcome = Appended | AppendedApart | EngineError


class AppendingReplica:
    """Takes the appends of one partition, as on a standalone node, which accepts each that the spool has room for.

    replica.py overrides what differs in a cluster: whether an append is accepted, and what ends a wait.
    """

    kept_from: int | None = None  # where the log of a leader ends that is not followed (cores/follower.KeepCommitted)

    def __init__(self, partition: Partition, committer: Committer, spool: Spool) -> None:
        self.partition = partition
        self._committer = committer
        self._spool = spool

    def check_append(self, acks: Acks) -> None:
        """Check whether an append would be accepted now. Raises SpoolFull."""
        if self._spool.is_full:
            self._spool.check(self.partition)

    def append_nowait(self, batch: bytes | bytearray, conditions: AppendConditions | None = None) -> None:
        """Queue a batch with acks=0, without a result. Raises as `append`."""
        self.check_append(Acks.NONE)
        written = self._committer.append(self.partition, batch, conditions, wants_sync=False)
        written.add_done_callback(retrieve_exception)

    def append(
        self, batch: bytes | bytearray, acks: Acks, conditions: AppendConditions | None = None
    ) -> asyncio.Future[Appended]:
        """Queue a batch now, so that calls keep their order. The future returns its positions once it is written.

        Raises the errors of `check_append`, and the error of an offline partition, with nothing queued.
        """
        self.check_append(acks)
        wants_sync = acks is Acks.ALL and self.partition.settings.durability == "group"
        return self._committer.append(self.partition, batch, conditions, wants_sync=wants_sync)

    def produce(
        self, batch: bytes | bytearray, acks: Acks, timeout_ms: int, conditions: AppendConditions | None = None
    ) -> Awaitable[Appended]:
        """Queue a batch now. Returns an awaitable of its positions."""
        return self.acknowledged(self.append(batch, acks, conditions), acks, timeout_ms)

    async def acknowledged(self, written: asyncio.Future[Appended], acks: Acks, timeout_ms: int) -> Appended:
        """Wait for the acknowledgement that `acks` names. Returns the positions, of a duplicate the first batch's.

        Raises the error of the append (nothing is stored) or AckTimeout (the records may be stored). A timeout or a
        cancellation ends only the wait: the append itself continues.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            appended = await loop_waits(loop).deadlines.done_by(deadline, written)
            if acks is Acks.ALL:
                watermark, end = self.partition.watermark, appended.base_offset + appended.record_count
                if watermark.position < end:
                    await watermark.acks.wait_until(deadline, end)
            return appended
        except TimeoutError:
            raise ack_timeout(self.partition.name, acks.value, timeout_ms) from None


class StandaloneReplica(AppendingReplica):
    """The only replica of one partition. The methods are those that clients call on a Replica."""

    def __init__(self, partition: Partition, committer: Committer, spool: Spool, node_id: int) -> None:
        super().__init__(partition, committer, spool)
        self._node_id = node_id

    def __repr__(self) -> str:
        return f"StandaloneReplica({self.partition!r})"

    def begin(
        self, batch: bytes | bytearray, timeout_ms: int, conditions: AppendConditions | None = None
    ) -> asyncio.Future[Appended]:
        """Produce with acks=1 as `produce` does, without a task. A cancelled future ends only the wait."""
        written = self.append(batch, Acks.LEADER, conditions)
        loop = written.get_loop()
        deadline = loop.time() + timeout_ms / 1000
        bucket = loop_waits(loop).deadlines.put(deadline, written, partial(self._expire, timeout_ms))
        written.add_done_callback(partial(_without_deadline, bucket))
        return written

    def _expire(self, timeout_ms: int, written: asyncio.Future[Appended]) -> None:
        if not written.done():
            written.set_exception(ack_timeout(self.partition.name, Acks.LEADER.value, timeout_ms))

    def produce_all(
        self,
        batches: Sequence[QueuedBatch],
        acks: Acks,
        timeout_ms: int,
    ) -> Awaitable[list[AppendOutcome]]:
        """Queue several batches now, in their order. Returns an awaitable of the positions or the error of each.

        Raises SpoolFull and the error of an offline partition, with nothing queued.
        """
        self.check_append(acks)
        wants_sync = acks is Acks.ALL and self.partition.settings.durability == "group"
        written = self._committer.append_all(self.partition, batches, wants_sync=wants_sync)
        return self._all_acknowledged(written, acks, timeout_ms)

    async def _all_acknowledged(
        self, written: list[asyncio.Future[Any]], acks: Acks, timeout_ms: int
    ) -> list[AppendOutcome]:
        """Wait for the acknowledgement of the last of them. Raises AckTimeout, which ends only the wait.

        Where they are written and not committed, each that was refused, or repeats committed records, has its outcome.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        last, watermark = written[-1], self.partition.watermark
        try:
            with suppress(EngineError):  # one group takes all of a queue, and ends them together
                await loop_waits(loop).deadlines.done_by(deadline, last)
        except TimeoutError:
            for one in written:
                one.add_done_callback(retrieve_exception)
            raise ack_timeout(self.partition.name, acks.value, timeout_ms) from None
        outcomes: list[AppendOutcome] = [
            one.result() if (error := one.exception()) is None else _as_engine_error(error) for one in written
        ]
        if acks is Acks.ALL:
            end = max(map(_end, outcomes))
            try:
                if watermark.position < end:
                    await watermark.acks.wait_until(deadline, end)
            except TimeoutError:
                return _up_to(watermark.position, outcomes, ack_timeout(self.partition.name, acks.value, timeout_ms))
            except EngineError as error:
                return _up_to(watermark.position, outcomes, error)
        return outcomes

    @property
    def in_sync(self) -> list[int]:
        return [self._node_id]

    @property
    def lag(self) -> dict[str, int]:
        """Return an empty dict: there are no other replicas."""
        return {}

    async def confirm_leading(self) -> None:
        """Return at once: no other node can lead."""

    def check_latest(self) -> None:
        """Accept every read of the end: the high watermark is never behind one that was reported before."""

    def check_serves_reads(self, least_epoch: int = 0, *, from_follower: bool = False) -> None:
        """Check the caller's epoch. Raises NotLeader if it is newer than the log's."""
        epoch = self.partition.log.leader_epoch
        if epoch < least_epoch:
            raise not_leading(self.partition.name, Lead(epoch), is_known=True)


class StandaloneReplicas:
    """The replicas of a standalone node. Implements Replicas."""

    def __init__(self, node_id: int, spool: Spool | None = None) -> None:
        self._node_id = node_id
        self._spool = spool or Spool()
        self.by_partition: dict[Partition, StandaloneReplica] = {}
        self.cached_bytes = 0  # no followers
        self.store_age_s: float | None = None
        self.has_contact = True

    def opened(self, shard: Shard, topic: Topic, partition: Partition) -> None:
        partition.begin_standalone()
        self.by_partition[partition] = StandaloneReplica(partition, shard.committer, self._spool, self._node_id)

    def closed(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.by_partition.pop(partition, None)

    def positions_moved(self, partition: Partition) -> None:
        """No-op: partitions of a standalone node commit by themselves."""

    def partition_went_offline(self, partition: Partition) -> None:
        """No-op: no other replica can lead."""

    def damaged(self, partition: Partition, offset: int) -> None:
        """No-op: no other replica has the records."""

    def read_failed(self, partition: Partition, offset: int) -> None:
        """No-op: no other replica has the records."""

    def leading_epoch(self, partition: Partition) -> int | None:
        return partition.log.leader_epoch

    def compacted_by_all(self, partition: Partition) -> int:
        return partition.compacted_end


def _without_deadline(bucket: Bucket, written: asyncio.Future[Appended]) -> None:
    bucket.pop(written, None)


def _end(outcome: AppendOutcome) -> int:
    """Returns the offset behind the records of an outcome; 0 of an error."""
    if isinstance(outcome, AppendedApart):
        return max(map(_end, outcome.outcomes))
    return outcome.end if isinstance(outcome, Appended) else 0


def _up_to(position: int, outcomes: Sequence[AppendOutcome], error: EngineError) -> list[AppendOutcome]:
    """Returns the outcomes, with an error for the records behind a position."""
    return [_or_error(position, one, error) for one in outcomes]


def _or_error(position: int, outcome: AppendOutcome, error: EngineError) -> AppendOutcome:
    if isinstance(outcome, AppendedApart):
        return AppendedApart([error if _end(one) > position else one for one in outcome.outcomes])
    return error if _end(outcome) > position else outcome


def _as_engine_error(error: BaseException) -> EngineError:
    """Returns an outcome of an append. Raises any other exception, which is a bug."""
    if not isinstance(error, EngineError):
        raise error
    return error
