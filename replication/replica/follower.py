"""The follower's side of a replica: makes its fetches, and applies the answers to the log.

cores/follower.py decides; this file applies the decisions to the log, one after the other (`Replica.log_work`). The
fetcher sends the fetches, for many replicas at once.
Invariant: the high watermark of a follower is at most its leader's and its own log_end, and decreases only with a
truncation.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from engine.errors import EngineError, InvalidBatch, OffsetBelowLogStart, UnexpectedOffset
from engine.format import batch as record_batch
from engine.format.batch import Buffer
from engine.runtime.tasks import BackgroundTasks
from replication.cores import follower
from replication.cores.fetch import BatchesEnd, FetchAnswer, FollowerFetch
from replication.cores.follower import FollowerPosition
from replication.cores.role import Follow, Role
from replication.replica.replica import Replica

SOON_S = 0.02  # the leader is about to start, or both positions have changed
LATER_S = 0.2  # one side has an old leader; the new state ends this wait early
AFTER_ERROR_S = 1.0

log = logging.getLogger("penstock.replication")


@dataclass(frozen=True, slots=True)
class FetchedData:
    """Holds the data of an answer: batches, the leader's log end, whether the batches begin one of its segments."""

    data: Buffer = b""
    log_end: int = 0
    is_segment_start: bool = False
    producer_state_offset: int = 0  # of the state in place of batches, for a log that begins there
    end: BatchesEnd | None = None  # of the batches, if the leader sent it

    @property
    def end_of_part(self) -> BatchesEnd | None:
        """The end of the batches, if the leader had more than it fetched."""
        return self.end if self.end is not None and self.end.offset < self.log_end else None


class FollowerDriver:
    """Drives the follower core of one replica; see the module docstring."""

    def __init__(self, replica: Replica, background: BackgroundTasks) -> None:
        self.replica = replica
        self._background = background
        self._producer_state: tuple[int, Buffer] = (0, b"")  # from the leader, for a log that begins at this offset
        self._is_deleting = False
        self._last_error: str | None = None  # logged once: every partition retries a full disk each second
        self._kept_in: Role | None = None  # the leadership that this replica does not follow; logged once
        self.truncations = 0
        self.restarts = 0

    def __repr__(self) -> str:
        return f"FollowerDriver({self.replica.key}, {self.replica.role})"

    @property
    def is_in_sync(self) -> bool:
        member, state = self.replica.host.member, self.replica.state
        return member is not None and state is not None and state.state.is_in_sync(member.node_id)

    def _is_offline(self) -> bool:
        return self.replica.partition.offline is not None

    def position(self) -> FollowerPosition:
        replica = self.replica
        partition, role = replica.partition, replica.role
        return FollowerPosition(
            role.leader_epoch if isinstance(role, Follow) else -1,
            partition.log.log_start,
            partition.log.local_log_start,
            partition.log_end,
            partition.durable_end,
            partition.high_watermark,
            partition.log.epochs,
            partition.compacted_end,
            None if replica.state is None else replica.state.state,
        )

    def next_fetch(self, ahead: BatchesEnd | None = None) -> FollowerFetch | None:
        """Returns the next fetch; None if the replica must not fetch: it does not follow, or its disk has failed.

        `ahead`: the end of an answer that has arrived and is not in the log yet.
        """
        member = self.replica.host.member
        if member is None or not isinstance(self.replica.role, Follow) or self._is_offline():
            return None
        return follower.next_fetch(member.node_id, member.broker_epoch, self.position(), ahead)

    async def on_answer(self, fetch: FollowerFetch, answer: FetchAnswer, fetched: FetchedData) -> float:
        """Applies an answer. Returns the pause before the next fetch, in seconds."""
        replica = self.replica
        async with replica.log_work:
            if not isinstance(replica.role, Follow) or self._is_offline():
                return 0.0
            effect = follower.on_answer(self.position(), fetch, answer)
            if replica.kept_from is not None and effect is not None:
                replica.kept_from = None
            try:
                wait_s = await self._do(effect, fetched)
            except (UnexpectedOffset, OffsetBelowLogStart):
                return SOON_S
            except InvalidBatch as error:
                self._log_error("batches of a leader were rejected", error)
                return AFTER_ERROR_S
            except (EngineError, OSError) as error:
                self._log_error("following failed", error)
                return AFTER_ERROR_S
            if self._last_error is not None:
                self._last_error = None
                log.info("following resumed", extra={"partition": replica.key})
            return wait_s

    async def _do(self, effect: follower.FollowerEffect | None, fetched: FetchedData) -> float:
        partition, shard = self.replica.partition, self.replica.shard
        match effect:
            case None:
                return 0.0
            case follower.Append():
                await self._append(effect, fetched)
                return 0.0
            case follower.Truncate(to, is_below_watermark):
                self._log_truncation(to, is_below_watermark=is_below_watermark)
                await shard.truncate(partition, to)
                return 0.0
            case follower.ResetLog(at, log_start):
                self.restarts += 1
                has_records = partition.log_end > partition.log.local_log_start  # a log start may be cut short
                self._log_truncation(at, is_below_watermark=has_records and at < partition.high_watermark)
                self._producer_state = (fetched.producer_state_offset, bytes(fetched.data))
                await shard.reset_log(partition, at, log_start, self._producer_state_for(at))
                return 0.0
            case follower.Backoff():
                return SOON_S
            case follower.RefreshState():
                return LATER_S
            case follower.KeepCommitted(to):
                self._keep_committed(to)
                return AFTER_ERROR_S

    async def _append(self, effect: follower.Append, fetched: FetchedData) -> None:
        partition = self.replica.partition
        if fetched.data:
            await self._reset_to_first_batch(fetched.data)
            await self.replica.shard.committer.append_as_follower(
                partition, fetched.data, wants_sync=self._wants_sync(fetched), starts_segment=fetched.is_segment_start
            )
        log_end = partition.log_end
        watermark = follower.follower_watermark(partition.high_watermark, effect.high_watermark, log_end)
        partition.watermark.advance(watermark)
        partition.compacted_by_all = max(partition.compacted_by_all, effect.compacted_by_all)
        log_start = min(effect.log_start, watermark)
        if log_start > partition.log.log_start and not self._is_deleting:
            self._follow_log_start(log_start)

    def _follow_log_start(self, offset: int) -> None:
        """Deletes the records below the leader's log start, in the background. A failure is retried after an answer."""
        self._is_deleting = True
        work = self._delete_below(offset)
        self._background.start(work, "following the leader's log start", of=self.replica.partition.name)

    async def _delete_below(self, offset: int) -> None:
        partition = self.replica.partition
        try:
            await self.replica.shard.follow_log_start(partition, offset)
        except EngineError as error:
            self._log_error("records not deleted", error)
            await asyncio.sleep(AFTER_ERROR_S)
        finally:
            self._is_deleting = False

    def _wants_sync(self, fetched: FetchedData) -> bool:
        """True if batches are fsynced at once: the replica is in sync or at the leader's end. Else by a timer."""
        is_fsync_demanded = self.replica.partition.settings.durability == "group"
        return is_fsync_demanded and (self.is_in_sync or fetched.end_of_part is None)

    async def _reset_to_first_batch(self, data: Buffer) -> None:
        """Reset an empty log to the base offset of its first batch, if records at its start were deleted."""
        log_ = self.replica.partition.log
        first = record_batch.read_header(data).base_offset if len(data) >= record_batch.HEADER_BYTES else log_.log_end
        if log_.size_bytes == 0 and first < log_.log_end:
            await self.replica.shard.reset_log(
                self.replica.partition, first, log_.log_start, self._producer_state_for(first)
            )

    def _producer_state_for(self, offset: int) -> Buffer:
        """Returns the state for a log that begins here. Empty after a truncation below the first local record."""
        state_offset, state = self._producer_state
        return state if state_offset == offset else b""

    def _keep_committed(self, to: int) -> None:
        """Notes that this replica does not follow, until the partition has another leader."""
        replica, role = self.replica, self.replica.role
        replica.kept_from = to
        if self._kept_in != role:
            self._kept_in = role
            log.error(
                "the leader lacks committed records that this replica has; the replica keeps them and does not follow",
                extra={
                    "partition": replica.partition.name,
                    "leader": role.leader if isinstance(role, Follow) else None,
                    "leader_log_end": to,
                    "high_watermark": replica.partition.high_watermark,
                    "hint": "docs/operate/backup.md, A leader that lacks committed records, says how to choose",
                },
            )

    def _log_error(self, message: str, error: EngineError | OSError) -> None:
        if self._last_error != str(error):
            self._last_error = str(error)
            log.error(message, extra={"partition": self.replica.key, "reason": self._last_error})

    def _log_truncation(self, to: int, *, is_below_watermark: bool) -> None:
        self.truncations += 1
        extra = {"partition": self.replica.key, "to": to, "log_end": self.replica.partition.log_end}
        if is_below_watermark:
            log.error("committed records are truncated: an unclean election, or a fault", extra=extra)
        elif to < self.replica.partition.log_end:
            log.warning("truncated to the leader's log", extra=extra)
        elif to > self.replica.partition.log_end:
            log.warning("reset to the leader's local log start", extra=extra)
