"""Answers the followers of a replica: the leader core's verdicts, and their batches.

Connects the fetch server, which knows sessions but no roles, to the replica, which knows its role but no wire format.
Invariant: batches read while leadership ended, or while the log was truncated, are not returned.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.format.batch import Buffer
from engine.log.epochs import epoch_before
from engine.runtime.disk import WouldBlock
from replication.cores.fetch import BatchesEnd, FetchAnswer, FetchError, FollowerFetch
from replication.cores.role import Lead
from replication.replica.replica import Replica


class FetchData(NamedTuple):
    """Holds batches for a follower, their end, the leader's log end, and whether they begin a segment of the leader."""

    data: Buffer
    log_end: int
    is_segment_start: bool
    end: BatchesEnd


class LeaderFetch:
    """The fetch server's interface to one replica. A replica that is about to lead answers UNKNOWN_LEADER_EPOCH."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def on_fetch(self, fetch: FollowerFetch) -> FetchAnswer:
        """Handle a fetch, which acknowledges the follower's log."""
        core = self._replica.core
        if core is None:
            return self._without_leading(fetch)
        answer, effects = core.on_fetch(fetch, self._replica.host.now())
        self._replica.do(effects)
        if core.compacted_by_all > self._replica.partition.compacted_by_all:
            self._replica.note_compacted(core)
        return answer

    def answer_to(self, fetch: FollowerFetch) -> FetchAnswer:
        core = self._replica.core
        if core is None:
            return self._without_leading(fetch)
        self._replica.note_log_start(core)
        return core.answer_to(fetch)

    def has_more(self, fetch: FollowerFetch) -> bool:
        core = self._replica.core
        return core is not None and core.log_end > fetch.wanted

    def is_in_sync(self, node_id: int) -> bool:
        state = self._replica.state
        return state is not None and state.state.is_in_sync(node_id)

    async def export_producer_state(self, offset: int) -> tuple[int, bytes]:
        """Return the state for a log that begins with the batch of this offset, and that batch's base offset."""
        return await self._replica.shard.export_producer_state(self._replica.partition, offset)

    async def read_for(self, fetch: FollowerFetch, max_bytes: int) -> FetchData | None:
        """Read batches for a follower; None if there are none, as after the end of a leadership. Raises EngineError."""
        replica = self._replica
        core, partition = replica.core, replica.partition
        try:
            chunk = replica.shard.reader.read_uncommitted_nowait(partition, fetch.wanted, max_bytes)
        except WouldBlock:
            chunk = await replica.shard.reader.read_uncommitted(partition, fetch.wanted, max_bytes)
        if chunk is None or core is None or replica.core is not core:
            return None
        end = BatchesEnd(chunk.next_offset, epoch_before(partition.log.epochs, chunk.next_offset))
        return FetchData(chunk.data, core.log_end, partition.log.has_segment_at(fetch.wanted), end)

    def _without_leading(self, fetch: FollowerFetch) -> FetchError:
        """Answer without a leadership. A follower that learns of a leadership before its leader does, waits."""
        replica = self._replica
        is_early = fetch.leader_epoch > replica.role_epoch or replica.role == Lead(fetch.leader_epoch)
        return FetchError.UNKNOWN_LEADER_EPOCH if is_early else FetchError.NOT_LEADER
