"""Follower progress as the leader knows it from fetches, and the high watermark that follows from it.

In pull replication a fetch is an acknowledgement: of everything below its offset, and of everything below its
durable_end as fsynced. A follower is in sync by time, not by record count: a burst must not remove healthy replicas
(Kafka dropped replica.lag.max.messages for this reason). The high watermark is Kafka's maybeIncrementLeaderHW and
checkEnoughReplicasReachOffset with KIP-966's strict minimum: every record below it is on every replica that can be
elected without an unclean election.
Invariants: `caught_up_at` and the high watermark never go back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


@dataclass(slots=True)
class Progress:
    """One follower's progress. `end` is durable_end for durability=group and log_end for durability=os."""

    caught_up_at: float
    log_end: int = -1  # unknown before the first fetch of this epoch
    end: int = -1
    broker_epoch: int = -1
    compacted_end: int = 0
    _mark_end: int = 0
    _mark_at: float | None = None

    def record_fetch(self, broker_epoch: int, log_end: int, end: int, leader_end: int, now: float) -> None:
        """Records a fetch of the current leader epoch that passed every check.

        1. At the leader's end: caught up now. 2. At the end that the leader had some fetches ago: caught up then.
        """
        self.broker_epoch, self.log_end, self.end = broker_epoch, log_end, end
        if end >= leader_end:
            self._note_caught_up(now)
            self._mark_at = None
            return
        if self._mark_at is not None and end >= self._mark_end:
            self._note_caught_up(self._mark_at)
            self._mark_at = None
        if self._mark_at is None:
            self._mark_end, self._mark_at = leader_end, now

    def leader_moves_on(self, leader_end: int, now: float) -> None:
        """Records that the leader is about to append: a follower at its end is caught up until now, even after an idle
        time.
        """
        if self.end >= leader_end:
            self._note_caught_up(now)

    def is_caught_up(self, leader_end: int, now: float, lag_s_max: float) -> bool:
        return self.end >= leader_end or now - self.caught_up_at <= lag_s_max

    def _note_caught_up(self, at: float) -> None:
        self.caught_up_at = max(self.caught_up_at, at)


def high_watermark(current: int, own_end: int, other_ends: Iterable[int], in_sync: int, min_in_sync: int) -> int:
    """Returns the least of the ends, never going back; unchanged below min_in_sync."""
    if in_sync < min_in_sync:
        return current
    return max(current, min([own_end, *other_ends]))


class AckVerdict(Enum):
    WAITING = "waiting"
    COMMITTED = "committed"
    TOO_FEW_AFTER_APPEND = "not_enough_replicas_after_append"  # the records may still be committed


def ack_verdict(end: int, watermark: int, in_sync: int, min_in_sync: int) -> AckVerdict:
    """Returns the verdict for a produce with acks=all whose records end here, while its leader leads."""
    if watermark < end:
        return AckVerdict.WAITING
    return AckVerdict.COMMITTED if in_sync >= min_in_sync else AckVerdict.TOO_FEW_AFTER_APPEND
