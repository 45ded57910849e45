"""Answers the followers of a replica: the leader core's verdicts, and their batches.

Connects the fetch server, which knows sessions but no roles, to the replica, which knows its role but no wire format.
New batches are in a cache, from the first fetch to the end of the leadership; the file has the others.
Invariant: batches read while leadership ended, or while the log was truncated, are not returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.format.batch import Buffer
from engine.log.batch_cache import BatchCaches, CachedBatches
from engine.log.epochs import epoch_before
from engine.runtime.disk import WouldBlock
from replication.cores.fetch import BatchesEnd, FetchAnswer, FetchError, FollowerFetch
from replication.cores.role import Lead
from replication.replica.replica import Replica


class FetchData(NamedTuple):
    """Holds batches for a follower, their end, the leader's log end, and whether they begin a segment of the leader."""

    pieces: Sequence[Buffer]
    size_bytes: int
    log_end: int
    is_segment_start: bool
    end: BatchesEnd


class LeaderFetch:
    """The fetch server's interface to one replica. A replica that is about to lead answers UNKNOWN_LEADER_EPOCH."""

    def __init__(self, replica: Replica, caches: BatchCaches) -> None:
        self._replica = replica
        self._caches = caches

    def on_fetch(self, fetch: FollowerFetch) -> FetchAnswer:
        """Handles a fetch, which acknowledges the follower's log."""
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
        """Returns the state for a log that begins with the batch of this offset, and that batch's base offset."""
        return await self._replica.shard.export_producer_state(self._replica.partition, offset)

    async def read_for(self, fetch: FollowerFetch, max_bytes: int) -> FetchData | None:
        """Read batches for a follower; None if there are none, as after the end of a leadership. Raises EngineError."""
        replica, offset = self._replica, fetch.wanted
        core, log = replica.core, replica.partition.log
        if core is None:
            return None
        batches = self._cached(offset, max_bytes) or await self._read_log(offset, max_bytes)
        if batches is None or replica.core is not core:
            return None
        end = BatchesEnd(batches.next_offset, epoch_before(log.epochs, batches.next_offset))
        return FetchData(batches.pieces, batches.size_bytes, core.log_end, log.has_segment_at(offset), end)

    def end_cache(self) -> None:
        """Ends the cache with the leadership, or with another change of role."""
        log = self._replica.partition.log
        if log.batch_cache is not None:
            log.batch_cache.clear()
            log.batch_cache = None

    def _cached(self, offset: int, max_bytes: int) -> CachedBatches | None:
        log = self._replica.partition.log
        if log.batch_cache is None:
            log.batch_cache = self._caches.new()
        if offset < log.local_log_start or log.segment_of(offset).damage:
            return None
        return log.batch_cache.read(offset, max_bytes, log.log_end)

    async def _read_log(self, offset: int, max_bytes: int) -> CachedBatches | None:
        reader, partition = self._replica.shard.reader, self._replica.partition
        try:
            chunk = reader.read_uncommitted_nowait(partition, offset, max_bytes)
        except WouldBlock:
            chunk = await reader.read_uncommitted(partition, offset, max_bytes)
        return chunk and CachedBatches([chunk.data], len(chunk.data), chunk.next_offset)

    def _without_leading(self, fetch: FollowerFetch) -> FetchError:
        """Answers without a leadership. A follower that learns of a leadership before its leader does, waits."""
        replica = self._replica
        is_early = fetch.leader_epoch > replica.role_epoch or replica.role == Lead(fetch.leader_epoch)
        return FetchError.UNKNOWN_LEADER_EPOCH if is_early else FetchError.NOT_LEADER
