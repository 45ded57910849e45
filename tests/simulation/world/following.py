"""The follower half of a partition on a simulated node: one fetch in flight, and the actions that its answers require.

replication.cores.follower decides. An unanswered fetch is retried, so several answers may arrive; the core says which
one still counts. With read-ahead an answer is written a little later and the next fetch is sent before that. So an
answer may arrive before its predecessor is written, which the real driver excludes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import EngineError, StorageFull
from engine.format import batch as record_batch
from replication.cores import follower
from replication.cores.fetch import BatchesEnd, FetchAnswer, FollowerFetch, Send
from replication.cores.follower import FollowerPosition
from replication.cores.role import Follow

if TYPE_CHECKING:
    from tests.simulation.world.hosted import Hosted

FETCH_TIMEOUT_S = 0.6
BACKOFF_S = 0.03
FULL_S = 0.2
WRITE_S = 0.02


class FollowerDriver:
    """The follower of `hosted`, which has the log, the role and the high watermark. See the head of the file."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        self._asked = 0  # the number of the newest fetch; only its answer sends the next one

    def position(self) -> FollowerPosition:
        hosted, log = self._hosted, self._hosted.log.log
        return FollowerPosition(
            hosted.role.leader_epoch if isinstance(hosted.role, Follow) else -1,
            log.log_start,
            log.local_log_start,
            log.log_end,
            hosted.log.durable_end,
            hosted.high_watermark,
            log.epochs,
            hosted.log.compacted_end,
            None if hosted.known is None else hosted.known.state,
        )

    def forget(self) -> None:
        """Answers in flight no longer trigger another fetch."""
        self._asked += 1

    def fetch(self, ahead: BatchesEnd | None = None) -> None:
        """Send a fetch now; the answer to an earlier one no longer triggers another fetch."""
        hosted, life = self._hosted, self._hosted.life
        if not isinstance(hosted.role, Follow) or hosted.log.offline:
            return
        self._asked += 1
        fetch = follower.next_fetch(life.node_id, life.member.broker_epoch, self.position(), ahead)
        life.send_fetch(hosted.role.leader, hosted.partition, fetch, self._asked)
        life.after(FETCH_TIMEOUT_S, self._fetch_if_unanswered, self._asked)

    def _fetch_if_unanswered(self, asked: int) -> None:
        if asked == self._asked:
            self.fetch()

    def on_answer(self, fetch: FollowerFetch, answer: FetchAnswer, data: bytes, asked: int) -> None:
        """Handle an answer, perhaps an old one: the core says whether it still counts."""
        life = self._hosted.life
        if asked == self._asked and data and isinstance(answer, Send) and life.options.reads_ahead:
            life.world.count("answers asked for ahead")
            self.fetch(_end_of(data))
            life.after(WRITE_S * life.world.random.random(), self._take, fetch, answer, data, asked)
        else:
            self._take(fetch, answer, data, asked)

    def _take(self, fetch: FollowerFetch, answer: FetchAnswer, data: bytes, asked: int) -> None:
        hosted = self._hosted
        if isinstance(hosted.role, Follow) and not hosted.log.offline:
            try:
                delay_s = self._follow(follower.on_answer(self.position(), fetch, answer), data)
            except StorageFull:
                hosted.life.world.count("copies refused by a full disk")
                delay_s = FULL_S
            except (EngineError, OSError) as error:
                hosted.went_offline(error)
                return
            if asked == self._asked:
                if delay_s:
                    hosted.life.after(delay_s, self._fetch_if_unanswered, asked)
                else:
                    self.fetch()

    def _follow(self, effect: follower.FollowerEffect | None, data: bytes) -> float:
        """Apply an answer; return how long to wait before the next fetch."""
        hosted = self._hosted
        match effect:
            case None:
                return 0.0
            case follower.Truncate() | follower.ResetLog() if hosted.log.segments_lock.locked():
                hosted.life.world.count("truncations that wait for a swap")
                return BACKOFF_S
            case follower.Truncate(to, is_below_watermark):
                self._note_truncation(to, is_below_watermark)
                hosted.log.truncate(to)
                hosted.high_watermark = min(hosted.high_watermark, hosted.log.log.log_end)
                self._lower_checkpoint()
            case follower.ResetLog(at, log_start):
                has_records = hosted.log.log.log_end > hosted.log.log.local_log_start
                self._note_truncation(at, has_records and at < hosted.high_watermark)
                hosted.life.world.count("restarts of a log")
                hosted.life.world.counts["restarts behind the log's start"] += log_start < at
                hosted.life.node.begins_again(hosted.life.node_id, hosted.partition)
                hosted.log.restart(at, log_start, data)
                hosted.high_watermark = at
                self._lower_checkpoint()
            case follower.Append(watermark, log_start, compacted_by_all):
                hosted.log.compacted_by_all = max(hosted.log.compacted_by_all, compacted_by_all)
                self._append(data, watermark, log_start)
            case follower.RefreshState() | follower.Backoff():
                return BACKOFF_S
            case follower.KeepCommitted(to):
                hosted.life.world.count("truncations refused")
                hosted.life.log("%s: keeps %d, the leader ends at %d", hosted.partition, hosted.high_watermark, to)
                return FULL_S
        return 0.0

    def _lower_checkpoint(self) -> None:
        """The file with the hints is saved with the recovery points, which a truncation lowers."""
        hosted, hints = self._hosted, self._hosted.life.node.high_watermark_checkpoint
        hints[hosted.partition] = min(hints.get(hosted.partition, 0), hosted.high_watermark)

    def _append(self, data: bytes, watermark: int, log_start: int) -> None:
        hosted = self._hosted
        if data and hosted.log.append_as_follower(data, hosted.life.clock.steady_ms()):
            hosted.life.log("%s: copied to %d", hosted.partition, hosted.log.log.log_end)
            hosted.sync_soon()
            empty = sum(header.record_count == 0 for _, header in record_batch.walk(data))
            hosted.life.world.counts["batches copied without records"] += empty
        log_end = hosted.log.log.log_end
        hosted.high_watermark = follower.follower_watermark(hosted.high_watermark, watermark, log_end)
        if log_start > hosted.log.log.log_start and not hosted.log.segments_lock.locked():
            hosted.trim_to(min(log_start, log_end), min(log_start, log_end))

    def _note_truncation(self, to: int, is_below_watermark: bool) -> None:
        hosted = self._hosted
        hosted.life.world.count("truncations")
        hosted.life.log("%s: truncates %d to %d", hosted.partition, hosted.log.log.log_end, to)
        if is_below_watermark:
            hosted.life.node.note_truncation_below_watermark(hosted.partition, to, hosted.high_watermark)


def _end_of(data: bytes) -> BatchesEnd:
    header = list(record_batch.walk(data))[-1][1]
    return BatchesEnd(header.next_offset, header.leader_epoch)
