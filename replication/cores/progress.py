"""How far one follower has come, as its leader knows from the fetches.

In pull replication a fetch is an acknowledgement: of everything below its offset, and of everything below its
durable_end as fsynced. Whether the follower is in sync is a matter of time, not of a count of records: bursts must not
throw healthy replicas out (Kafka removed replica.lag.max.messages for that).
Invariant: `caught_up_at` never goes back.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    """`end` is the position that the topic's durability names: durable_end for group, log_end for os."""

    caught_up_at: float
    log_end: int = -1  # not known before the first fetch of this epoch
    end: int = -1
    incarnation: int = -1
    _mark_end: int = 0
    _mark_at: float | None = None

    def fetched(self, incarnation: int, log_end: int, end: int, leader_end: int, now: float) -> None:
        """A fetch in the leader's own epoch that passed every check.

        1. At the leader's end: caught up now. 2. At the end that the leader had some fetches ago: caught up then.
        """
        self.incarnation, self.log_end, self.end = incarnation, log_end, end
        if end >= leader_end:
            self._caught_up(now)
            self._mark_at = None
            return
        if self._mark_at is not None and end >= self._mark_end:
            self._caught_up(self._mark_at)
            self._mark_at = None
        if self._mark_at is None:
            self._mark_end, self._mark_at = leader_end, now

    def leader_moves_on(self, leader_end: int, now: float) -> None:
        """The leader is about to write. Who was at its end until now has missed nothing, however long that was idle."""
        if self.end >= leader_end:
            self._caught_up(now)

    def is_caught_up(self, leader_end: int, now: float, lag_s_max: float) -> bool:
        return self.end >= leader_end or now - self.caught_up_at <= lag_s_max

    def _caught_up(self, at: float) -> None:
        self.caught_up_at = max(self.caught_up_at, at)
