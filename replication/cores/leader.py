"""The leader of one partition in one leader epoch: answers fetches, maintains the in-sync set, advances the high
watermark.

Only decides. The driver appends, syncs, sends and writes to the store, reports the outcome, and carries out the
returned effects. Each epoch has a new instance, so no state of an earlier epoch survives.

Rules from the TLA+ specification Kip320, each removed by a test: (1) a follower's log is compared before anything
is sent (`position_verdict`); (2) both sides name the same leader epoch, and (3) only such fetches acknowledge
(`epoch_verdict`); (4) a joining follower has reached the start of this epoch (`may_join`). Invariants: log_start <=
local_log_start <= high_watermark <= own log_end; the high watermark never goes back; one change of the set at a time,
and the high watermark waits for every member that the store may have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.log.epochs import EpochStart, end_offset_for, truncated_from_start
from replication.cores.fetch import Diverging, FetchAnswer, FetchError, FollowerFetch, OutOfRange, Send
from replication.cores.in_sync_set import InSyncSet, with_in_sync
from replication.cores.partition_state import (
    Member,
    PartitionState,
    Registrations,
    TopicRules,
    VersionedState,
    node_ids,
)
from replication.cores.progress import AckVerdict, Progress, ack_verdict, high_watermark


@dataclass(frozen=True, slots=True)
class AdvanceWatermark:
    """Commit every record below the position."""

    position: int


@dataclass(frozen=True, slots=True)
class Propose:
    """Compare-and-set the partition's state, then call on_confirmed, or on_state with the state that is there."""

    state: PartitionState
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class StepDown:
    """Stop leading: this log lacks records that a member of the sets has, committed to its high watermark."""

    node_id: int
    high_watermark: int


LeaderEffect = AdvanceWatermark | Propose | StepDown


@dataclass(frozen=True, slots=True)
class LeaderStatistics:
    leader_epoch: int
    epoch_start: int
    log_end: int
    durable_end: int
    high_watermark: int
    in_sync: tuple[int, ...]
    proposed: tuple[int, ...] | None
    lags: tuple[tuple[int, int], ...]


class LogBounds(NamedTuple):
    """The ends of a log. Records below log_start are deleted; those up to local_log_start are in the store only."""

    log_start: int
    local_log_start: int
    log_end: int


def epoch_verdict(leader_epoch: int, fetch: FollowerFetch) -> FetchError | None:
    """Returns an error unless both sides have the same leader epoch."""
    if fetch.leader_epoch < leader_epoch:
        return FetchError.FENCED_LEADER_EPOCH
    return FetchError.UNKNOWN_LEADER_EPOCH if fetch.leader_epoch > leader_epoch else None


def position_verdict(
    epochs: Sequence[EpochStart], bounds: LogBounds, fetch: FollowerFetch
) -> OutOfRange | Diverging | None:
    """Returns None if the follower's log is a prefix of this one, else what it has to do.

    1. Its end is below the first local record: no records to compare or send. 2. Its last epoch is older than all
    epochs that this log knows, and this log starts in the middle: the point of divergence is unknown. 3. Its last epoch
    is unknown here, or ends earlier here: the logs diverge there; the same for `ahead`. 4. Its end is past ours with
    our newest epoch: epochs cannot reconcile the logs.
    """
    if fetch.log_end < bounds.local_log_start:
        return _out_of_range(bounds)
    if fetch.last_epoch is not None:
        if fetch.last_epoch < epochs[0].epoch and epochs[0].start_offset > bounds.log_start:
            return _out_of_range(bounds)
        if parted := _divergence(epochs, bounds, fetch.log_end, fetch.last_epoch):
            return parted
    if fetch.ahead is not None and (parted := _divergence(epochs, bounds, fetch.ahead.offset, fetch.ahead.epoch)):
        return parted
    return _out_of_range(bounds) if fetch.wanted > bounds.log_end else None


def _divergence(epochs: Sequence[EpochStart], bounds: LogBounds, end: int, epoch: int) -> OutOfRange | Diverging | None:
    ends = end_offset_for(epochs, epoch, bounds.log_end)
    if ends is None:
        return _out_of_range(bounds)
    return Diverging(ends) if ends.epoch < epoch or ends.end_offset < end else None


def _out_of_range(bounds: LogBounds) -> OutOfRange:
    return OutOfRange(bounds.local_log_start, bounds.log_end, bounds.log_start)


def may_join(end: int, watermark: int, epoch_start: int) -> bool:
    """True if a follower with this end has all committed records and all records from before this leader epoch."""
    return end >= watermark and end >= epoch_start


class Leader:
    """The core of one leader epoch. `now` is monotonic seconds throughout."""

    def __init__(
        self,
        own: Member,
        versioned: VersionedState,
        rules: TopicRules,
        *,
        partition: str,
        lag_s_max: float,
        log_start: int,
        local_log_start: int,
        log_end: int,
        durable_end: int,
        watermark: int,
        epochs: Sequence[EpochStart],
        now: float,
    ) -> None:
        state = versioned.state
        assert state.leader is not None
        assert state.leader.node_id == own.node_id
        assert epochs[-1].epoch == state.leader_epoch, "the epoch is begun, durably, before it is led"
        self.own = own
        self.partition = partition
        self.rules = rules
        self.leader_epoch = state.leader_epoch
        self.epoch_start = epochs[-1].start_offset
        self.epochs = tuple(epochs)
        self.log_start = log_start
        self.local_log_start = local_log_start
        self.log_end = log_end
        self.durable_end = durable_end
        self.high_watermark = max(watermark, local_log_start)  # records leave this disk only once committed
        self.compacted_end = self.compacted_by_all = 0
        self._lag_s_max = lag_s_max
        self._set = InSyncSet(versioned)
        self._nodes: Registrations = {}
        self._progress: dict[int, Progress] = {}
        self._follow_replicas(now)

    def __repr__(self) -> str:
        return f"Leader({self.own.node_id}, {self.statistics()})"

    def statistics(self) -> LeaderStatistics:
        proposed = self._set.proposed
        return LeaderStatistics(
            leader_epoch=self.leader_epoch,
            epoch_start=self.epoch_start,
            log_end=self.log_end,
            durable_end=self.durable_end,
            high_watermark=self.high_watermark,
            in_sync=tuple(sorted(m.node_id for m in self.state.in_sync)),
            proposed=tuple(sorted(m.node_id for m in proposed.in_sync)) if proposed else None,
            lags=tuple(
                (node, self.log_end - max(progress.end, self.log_start))
                for node, progress in sorted(self._progress.items())
            ),
        )

    @property
    def state(self) -> PartitionState:
        return self._set.committed.state

    @property
    def min_in_sync(self) -> int:
        return self.rules.min_in_sync(self.state.counted_replicas)

    @property
    def has_enough_replicas(self) -> bool:
        """False if a produce with acks=all must be rejected; that error is definite."""
        return self._set.size >= self.min_in_sync

    @property
    def latest_offset(self) -> int | None:
        """The end for consumers; None until this leader has reached the high watermark that its predecessor reported.

        KIP-207: followers learn the high watermark one fetch late, so a new leader's may be behind what was read.
        """
        return self.high_watermark if self.high_watermark >= self.epoch_start else None

    def ack_verdict(self, end: int) -> AckVerdict:
        """Returns the verdict for an acks=all produce whose records end here."""
        return ack_verdict(end, self.high_watermark, self._set.size, self.min_in_sync)

    # Events. The caller carries out the returned effects in order.

    def answer_to(self, fetch: FollowerFetch) -> FetchAnswer:
        """Returns the answer to a fetch, for instance one that was held. Acknowledges nothing."""
        refusal = self._epoch_verdict(fetch) or self._replica_verdict(fetch) or self._position_verdict(fetch)
        return refusal or Send(fetch.wanted, self.high_watermark, self.log_start, self.compacted_by_all)

    def on_fetch(self, fetch: FollowerFetch, now: float) -> tuple[FetchAnswer, list[LeaderEffect]]:
        """Answers a fetch. Only a fetch that passes every check acknowledges records."""
        answer = self.answer_to(fetch)
        if not isinstance(answer, Send):
            if self._lacks_committed_of(fetch, answer):
                return FetchError.NOT_LEADER, [StepDown(fetch.node_id, fetch.high_watermark)]
            return answer, []
        end = self._end_of(fetch.log_end, fetch.durable_end)
        progress = self._progress[fetch.node_id]
        progress.record_fetch(fetch.broker_epoch, fetch.log_end, end, self.log_end, now)
        if progress.compacted_end != fetch.compacted_end:
            progress.compacted_end = fetch.compacted_end
            self.on_compacted(self.compacted_end)
        effects = self._advance(now) + self._grow(fetch.node_id)
        return Send(fetch.wanted, self.high_watermark, self.log_start, self.compacted_by_all), effects

    def on_written(self, log_end: int, now: float) -> list[LeaderEffect]:
        assert log_end >= self.log_end
        for progress in self._progress.values():
            progress.leader_moves_on(self.log_end, now)
        self.log_end = log_end
        return self._advance(now)

    def on_synced(self, durable_end: int, now: float) -> list[LeaderEffect]:
        assert durable_end <= self.log_end
        self.durable_end = max(self.durable_end, durable_end)
        return self._advance(now)

    def on_log_start(self, log_start: int, local_log_start: int) -> None:
        """Raises the log start or the local log start. Followers receive it with their next answer."""
        assert self.log_start <= log_start <= local_log_start <= self.high_watermark
        self.log_start, self.local_log_start = log_start, local_log_start
        self.epochs = tuple(truncated_from_start(self.epochs, log_start))

    def on_compacted(self, end: int) -> None:
        """Take the end of the compacted part of this log; find that of all replicas, also of those that are away.

        It never goes back: a replica that begins again copies what a compacted leader has.
        """
        self.compacted_end = end
        least = min([end, *(progress.compacted_end for progress in self._progress.values())])
        self.compacted_by_all = max(self.compacted_by_all, least)

    def on_tick(self, now: float) -> list[LeaderEffect]:
        """Remove members that lag, then add followers that could not join yet. Called a few times per `lag_s_max`."""
        behind = [m for m in self.state.in_sync if m.node_id != self.own.node_id and not self._keeps_up(m, now)]
        effects = self._advance(now)
        if behind and self._set.proposed is None:
            effects.append(self._proposal(tuple(m for m in self.state.in_sync if m not in behind)))
        return effects + self._grow_at_rest(now)

    def on_nodes(self, nodes: Registrations) -> None:
        """Takes the registered nodes. Fetches of an earlier broker epoch are rejected from now on."""
        self._nodes = nodes

    def on_state(self, versioned: VersionedState, now: float) -> list[LeaderEffect]:
        """Applies a state of this leader epoch from the store: the controller's, or the own proposal."""
        assert versioned.state.leader_epoch == self.leader_epoch
        if not self._set.apply(versioned):
            return []
        self._follow_replicas(now)
        return self._advance(now) + self._grow_at_rest(now)

    def on_confirmed(self, partition_epoch: int, now: float) -> list[LeaderEffect]:
        """Takes the proposal as committed."""
        self._set.confirm(partition_epoch)
        return self._advance(now) + self._grow_at_rest(now)

    def on_proposal_rejected(self) -> None:
        """Drops the proposal: it is not in the store and will not be (InSyncSet.reject_proposal)."""
        self._set.reject_proposal()

    # Rules.

    def _epoch_verdict(self, fetch: FollowerFetch) -> FetchError | None:
        return epoch_verdict(self.leader_epoch, fetch)

    def _replica_verdict(self, fetch: FollowerFetch) -> FetchError | None:
        """KIP-903: records that an earlier broker epoch fetched may be gone from the node's disk."""
        progress = self._progress.get(fetch.node_id)
        if progress is None:
            return FetchError.UNKNOWN_REPLICA
        node = self._nodes.get(fetch.node_id)
        is_stale = fetch.broker_epoch < max(progress.broker_epoch, node.broker_epoch if node else 0)
        return FetchError.NOT_LEADER if is_stale else None

    def _position_verdict(self, fetch: FollowerFetch) -> OutOfRange | Diverging | None:
        bounds = LogBounds(self.log_start, self.local_log_start, self.log_end)
        return position_verdict(self.epochs, bounds, fetch)

    def _lacks_committed_of(self, fetch: FollowerFetch, answer: FetchAnswer) -> bool:
        """True if a member of the sets would have to truncate committed records, and no unclean election explains it.

        Only members count: the controller elects one of them, and it has all that was committed.
        """
        end = answer.ends.end_offset if isinstance(answer, Diverging) else getattr(answer, "log_end", None)
        if end is None or end >= fetch.high_watermark or fetch.last_epoch is None:
            return False
        members = node_ids((*self.state.in_sync, *self.state.eligible))
        return fetch.node_id in members and not self.state.explains_truncation(fetch.last_epoch)

    def _end_of(self, log_end: int, durable_end: int) -> int:
        """A replica's end by the topic's durability."""
        return durable_end if self.rules.is_fsync_demanded else log_end

    def _may_join(self, progress: Progress) -> bool:
        return may_join(progress.end, self.high_watermark, self.epoch_start)

    def _grow(self, node_id: int) -> list[LeaderEffect]:
        """Propose a follower for the in-sync set, if it has all records and the store would accept it."""
        progress = self._progress[node_id]
        if self._set.proposed is not None or self.state.is_in_sync(node_id) or not self._may_join(progress):
            return []
        if not self._is_eligible_member(node_id, progress):
            return []
        return [self._proposal((*self.state.in_sync, Member(node_id, progress.broker_epoch)))]

    def _grow_at_rest(self, now: float) -> list[LeaderEffect]:
        """Propose a follower that has stopped fetching because the partition is idle, once another change no longer
        blocks it.
        """
        for node_id, progress in sorted(self._progress.items()):
            if self._is_joining(node_id, progress, now) and (effects := self._grow(node_id)):
                return effects
        return []

    def _is_eligible_member(self, node_id: int, progress: Progress) -> bool:
        """True if the node that fetched is registered in the same broker epoch, stays, and has the partition online."""
        node = self._nodes.get(node_id)
        if node is None or node.is_leaving or self.partition in node.offline:
            return False
        return node.broker_epoch == progress.broker_epoch

    def _proposal(self, in_sync: tuple[Member, ...]) -> Propose:
        proposed = with_in_sync(self.state, in_sync, self.rules)
        self._set.propose(proposed)
        return Propose(proposed, self._set.committed.partition_epoch)

    @property
    def _may_others_lead(self) -> bool:
        """True if a replica outside of the in-sync set may be elected, which has only records committed until now.

        False while enough are in sync, except just after min_insync_replicas was lowered: the controller has yet to
        clear the eligible set.
        """
        return bool(self.state.eligible)

    def _advance(self, now: float) -> list[LeaderEffect]:
        own_end = self._end_of(self.log_end, self.durable_end)
        if own_end <= self.high_watermark or self._may_others_lead:
            return []
        ends = [self._progress[node].end for node in self._waited_for(now)] if self._progress else []
        state = self._set.committed.state
        minimum = self.rules.min_in_sync(state.counted_replicas)
        watermark = high_watermark(self.high_watermark, own_end, ends, len(state.in_sync), minimum)
        assert self.high_watermark <= watermark <= self.log_end
        if watermark == self.high_watermark:
            return []
        self.high_watermark = watermark
        return [AdvanceWatermark(watermark)]

    def _waited_for(self, now: float) -> set[int]:
        """Members that may be in sync, and followers about to join, so that the high watermark does not run away from
        them.
        """
        counted = self._set.maximal
        return {
            node
            for node, progress in self._progress.items()
            if node in counted or self._is_joining(node, progress, now)
        }

    def _is_joining(self, node_id: int, progress: Progress, now: float) -> bool:
        is_near = self._may_join(progress) and progress.is_caught_up(self.log_end, now, self._lag_s_max)
        return is_near and self._is_eligible_member(node_id, progress)

    def _keeps_up(self, member: Member, now: float) -> bool:
        progress = self._progress.get(member.node_id)
        return progress is not None and progress.is_caught_up(self.log_end, now, self._lag_s_max)

    def _follow_replicas(self, now: float) -> None:
        """Track the replicas of the state. In-sync members count as caught up now; others are unknown."""
        for node in self.state.replicas:
            if node != self.own.node_id and node not in self._progress:
                self._progress[node] = Progress(now if self.state.is_in_sync(node) else -self._lag_s_max)
        for node in self._progress.keys() - set(self.state.replicas):
            del self._progress[node]
