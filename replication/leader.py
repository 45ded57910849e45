"""The leader of one partition: takes records in and decides when they are committed.

The high watermark is the minimum over the in-sync replicas of the end that the topic's durability names: durable_end
for `group`, log_end for `os`. With one replica that replica is this node; followers join in replication's next step.
Does not write: the committer does. Does not know HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from engine.admission import Appended, Terms
from engine.committer import Committer
from engine.errors import AckTimeout
from engine.partition import Partition
from engine.waiters import done_by
from replication.acks import Acks

MAYBE_STORED = (
    "the records may be committed; sent again without an Idempotency-Key or Producer-Seq they may be there twice"
)


def high_watermark(in_sync_ends: list[int]) -> int:
    """Everything below it is on every in-sync replica. Kafka's maybeIncrementLeaderHW."""
    return min(in_sync_ends)


class Leader:
    """Produces into a partition and moves its high watermark."""

    def __init__(self, partition: Partition, committer: Committer, node_id: int) -> None:
        self.partition = partition
        self.in_sync = [node_id]
        self.lag: dict[str, int] = {}  # of each other replica, in records
        self._committer = committer
        partition.when_positions_move = self._positions_moved
        partition.when_waited_for = self._waited_for

    def __repr__(self) -> str:
        return f"Leader({self.partition!r}, in_sync={self.in_sync})"

    def check_append(self, acks: Acks) -> None:
        """Raises what an append would be refused with now, before anything of it is queued: nothing, alone."""

    def check_serves_reads(self, least_epoch: int = 0) -> None:
        """Raises NotLeader unless this replica leads, in that epoch or a later one: who is alone does."""

    def check_latest(self) -> None:
        """Raises OffsetNotAvailable while a new leader does not know what was committed before it. Alone it does."""

    def append_nowait(self, batch: bytes | bytearray, terms: Terms | None = None) -> None:
        """acks=0: queue the batch and never look back."""
        self._committer.append(self.partition, batch, terms, wants_sync=False).add_done_callback(_forget)

    def append(self, batch: bytes | bytearray, acks: Acks, terms: Terms | None = None) -> asyncio.Future[Appended]:
        """Queue a batch now, so that calls keep their order; the future is its positions once log_end passed them."""
        wants_sync = acks is Acks.ALL and self.partition.settings.durability == "group"
        return self._committer.append(self.partition, batch, terms, wants_sync=wants_sync)

    def produce(
        self, batch: bytes | bytearray, acks: Acks, timeout_ms: int, terms: Terms | None = None
    ) -> Awaitable[Appended]:
        """Queue a batch now; what is returned is to be awaited for its positions."""
        return self.acknowledged(self.append(batch, acks, terms), acks, timeout_ms)

    async def acknowledged(self, written: asyncio.Future[Appended], acks: Acks, timeout_ms: int) -> Appended:
        """Wait for what `acks` asks; returns the positions. Of a duplicate that is what it asks of the first one's.

        Raises what the append met (nothing stored), or AckTimeout (it may be). A timeout or a cancel gives up the wait
        only: the future is how the append reports, not what carries it out.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            appended = await done_by(deadline, written)
            if acks is Acks.ALL and self.partition.high_watermark < appended.end:
                await done_by(deadline, self.partition.wait_for_ack(appended.end))
            return appended
        except TimeoutError:
            text = f"{self.partition.name}: acks={acks.value} was not reached within {timeout_ms} ms"
            raise AckTimeout(text, hint=MAYBE_STORED) from None

    def _positions_moved(self) -> None:
        is_fsync_demanded = self.partition.settings.durability == "group"
        own_end = self.partition.durable_end if is_fsync_demanded else self.partition.log_end
        self.partition.advance_high_watermark(high_watermark([own_end]))

    def _waited_for(self) -> None:
        """A long poll or ack waits for bytes that are written but not fsynced: do not leave them to the flush timer."""
        if self.partition.unsynced_since is not None:
            self._committer.look_at(self.partition)


def _forget(future: asyncio.Future[Appended]) -> None:
    """Nobody waits any more: a failure is in the metrics and must not be reported as never retrieved."""
    if not future.cancelled():
        future.exception()
