"""A follower in one leader epoch: the next fetch, and the effect of an answer.

Pure functions of a follower's position; the driver appends, truncates and sends. Truncation is not a phase of its own:
every fetch names the epoch of the last record, so any answer may report divergence (KIP-320, KIP-595), and nothing is
copied before the logs agree. Committed records are truncated only if the state has an unclean election that explains
it; otherwise the leader is the one that lacks them. An answer counts only for the log end, last epoch and leader epoch
that its fetch had. While an answer is being written the next fetch may be in flight (`ahead`): it acknowledges nothing
that is not in the log, and its answer counts only if the write before it succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.log.epochs import EpochStart, end_offset_for, epoch_before
from replication.cores.fetch import BatchesEnd, Diverging, FetchAnswer, FetchError, FollowerFetch, OutOfRange, Send
from replication.cores.partition_state import PartitionState


@dataclass(frozen=True, slots=True)
class FollowerPosition:
    """The follower's own positions at the time of a fetch or of an answer. `state`: that of its leader epoch."""

    leader_epoch: int
    log_start: int
    local_log_start: int
    log_end: int
    durable_end: int
    high_watermark: int
    epochs: Sequence[EpochStart]
    compacted_end: int = 0
    state: PartitionState | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to this offset, durably, and fetch again. `is_below_watermark`: an unclean election lost records
    that were committed.
    """

    to: int
    is_below_watermark: bool = False


@dataclass(frozen=True, slots=True)
class ResetLog:
    """Drop all records and continue at `at`: the leader has no older records on disk, or cannot find where the logs
    diverge.

    Records between log_start and `at` are in the tiered store. Taking `at` as the log start would delete them there
    once this replica led.
    """

    at: int
    log_start: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append the batches of the answer byte for byte, then take the positions."""

    high_watermark: int
    log_start: int
    compacted_by_all: int = 0


@dataclass(frozen=True, slots=True)
class RefreshState:
    """Read the partition state before the next fetch: one side does not know the current leader."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Fetch again after a pause: the leader does not know its own epoch yet, or is not ready."""


@dataclass(frozen=True, slots=True)
class KeepCommitted:
    """Change nothing and do not follow this leader: its log ends at `to`, below what is committed here, although every
    election since was clean. Its disk was rolled back, or has lost what it had fsynced.
    """

    to: int


FollowerEffect = Truncate | ResetLog | Append | RefreshState | Backoff | KeepCommitted


def next_fetch(
    node_id: int, broker_epoch: int, position: FollowerPosition, ahead: BatchesEnd | None = None
) -> FollowerFetch:
    """Builds the next fetch. `ahead` is where the answer ends that is being written."""
    return FollowerFetch(
        node_id,
        broker_epoch,
        position.leader_epoch,
        position.log_end,
        position.durable_end,
        last_epoch(position),
        position.high_watermark,
        ahead,
        position.compacted_end,
    )


def last_epoch(position: FollowerPosition) -> int | None:
    return position.epochs[-1].epoch if position.epochs else None


def on_answer(position: FollowerPosition, fetch: FollowerFetch, answer: FetchAnswer) -> FollowerEffect | None:
    """Returns the effect of an answer; None if the position has changed since its fetch.

    The last epoch is compared too: a log may be truncated and grow back to the same end with other records. The same
    holds for a fetch ahead: once its end and epoch are in the log, all records before are the leader's. An error or
    divergence that answers a fetch ahead is dropped, since it was decided for an older log end.
    """
    asked = (fetch.log_end, fetch.last_epoch) if fetch.ahead is None else fetch.ahead
    if (fetch.leader_epoch, *asked) != (position.leader_epoch, position.log_end, last_epoch(position)):
        return None
    if fetch.ahead is not None and not isinstance(answer, Send):
        return None
    match answer:
        case FetchError.UNKNOWN_LEADER_EPOCH:
            return Backoff()
        case FetchError():
            return RefreshState()
        case OutOfRange():
            return _out_of_range(position, answer)
        case Diverging(ends):
            return _truncate(position, truncation_point(position, ends.epoch, ends.end_offset))
        case Send():
            return Append(answer.high_watermark, answer.log_start, answer.compacted_by_all)


def truncation_point(position: FollowerPosition, epoch: int, end_offset: int) -> int:
    """Returns the offset to truncate to when this epoch ends there in the leader's log (KIP-279).

    1. The epoch is known here: the earlier of the two ends. 2. It is unknown: the end of the nearest lower epoch, about
    which the next fetch asks. 3. No lower epoch is known: the start of the log.
    """
    own_end = end_offset_for(position.epochs, epoch, position.log_end)
    if own_end is None:
        return min(end_offset, position.log_end)
    if own_end.epoch != epoch:
        return min(own_end.end_offset, position.log_end)
    return min(own_end.end_offset, end_offset, position.log_end)


def follower_watermark(own_watermark: int, leaders: int, log_end: int) -> int:
    """Returns the follower's high watermark: the leader's, capped at the own log end, never going back."""
    return max(own_watermark, min(leaders, log_end))


def _out_of_range(position: FollowerPosition, answer: OutOfRange) -> FollowerEffect:
    """Choose the effect when the leader has not said where the logs diverge.

    1. Our last record has a later epoch than the leader: the coordination store was restored; change nothing. 2. The
    leader's log is shorter: truncate to its end. 3. It starts after our end, ends before our local start, or does not
    know the epochs to compare: reset to its local start. Committed records are safe: below its first local record they
    are in the tiered store or deleted.
    """
    if (last_epoch(position) or 0) > position.leader_epoch:
        return Backoff()
    if position.local_log_start <= answer.log_end < position.log_end:
        return _truncate(position, answer.log_end)
    if _must_keep(position, answer.log_end):
        return KeepCommitted(answer.log_end)
    return ResetLog(answer.local_log_start, answer.log_start)


def _must_keep(position: FollowerPosition, to: int) -> bool:
    """True if committed records beyond this offset would be lost, and no unclean election since explains it."""
    committed = min(position.high_watermark, position.log_end)
    if to >= committed or committed <= position.local_log_start:
        return False
    epoch = epoch_before(position.epochs, committed)
    return position.state is None or not position.state.explains_truncation(epoch)


def _truncate(position: FollowerPosition, to: int) -> FollowerEffect:
    if _must_keep(position, to):
        return KeepCommitted(to)
    if to < position.local_log_start:
        # Only after an unclean election. Restart at the log start: the leader sends the records in between, or answers
        # out_of_range with its own local start, which it does for no other offset.
        begin = min(to, position.log_start)
        return ResetLog(begin, begin)
    return Truncate(to, is_below_watermark=to < position.high_watermark)
