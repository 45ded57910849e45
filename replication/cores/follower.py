"""A follower of one leader epoch: what to ask next, and what to make of the answer.

Pure functions of a follower's position; the driver appends, truncates and sends. There is no phase of truncation apart
from fetching: every fetch names the epoch of the last record, so every answer may find that the logs part (KIP-320's
fetch-time divergence), and nothing is copied before they agree.
An answer counts only for the position, the last epoch and the leader epoch that it was asked with.
While an answer is being written the next one may be asked for already (`ahead`). That fetch tells of nothing that
is not in the log, and its answer counts only if the one before has been written: whatever fails before it drops it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.log.epochs import EpochStart, end_offset_for
from replication.cores.fetch import BatchesEnd, Diverging, FetchAnswer, FollowerFetch, OutOfRange, Refusal, Send


@dataclass(frozen=True, slots=True)
class FollowerPosition:
    """What a follower knows of itself when it asks and when it is answered."""

    leader_epoch: int
    log_start: int
    local_log_start: int
    log_end: int
    durable_end: int
    high_watermark: int
    epochs: Sequence[EpochStart]


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log here, durably, and fetch again. `is_below_watermark` must never be seen without unclean elections."""

    to: int
    is_below_watermark: bool = False


@dataclass(frozen=True, slots=True)
class Restart:
    """Forget every record and go on from here: the leader has nothing older on its disk, or cannot tell where we part.

    What lies between log_start and here is in the tiered store: who took its own start for the log's would have it
    deleted there as soon as it led.
    """

    at: int
    log_start: int


@dataclass(frozen=True, slots=True)
class Append:
    """Store the batches that came with the answer, byte for byte; then the two positions."""

    high_watermark: int
    log_start: int


@dataclass(frozen=True, slots=True)
class AskStore:
    """This side or the other is out of date about who leads: read the state before asking again."""


@dataclass(frozen=True, slots=True)
class AskLater:
    """The leader has not heard of its own epoch yet, or is not ready. Wait a little."""


FollowerEffect = Truncate | Restart | Append | AskStore | AskLater


def next_fetch(
    node_id: int, incarnation: int, position: FollowerPosition, ahead: BatchesEnd | None = None
) -> FollowerFetch:
    """`ahead`: where the answer ends that is being written."""
    return FollowerFetch(
        node_id,
        incarnation,
        position.leader_epoch,
        position.log_end,
        position.durable_end,
        last_epoch(position),
        position.high_watermark,
        ahead,
    )


def last_epoch(position: FollowerPosition) -> int | None:
    return position.epochs[-1].epoch if position.epochs else None


def on_answer(position: FollowerPosition, fetch: FollowerFetch, answer: FetchAnswer) -> FollowerEffect | None:
    """What to do about an answer; None when it is not an answer to what would be asked now.

    The last epoch belongs to the question: a log may be cut and grow to the same end again, with other records. So it
    does where a fetch asked ahead: an end and its epoch, once they are ours, say that all before is the leader's too. A
    verdict other than batches was on where the log stood then, and says nothing of where it stands.
    """
    asked = (fetch.log_end, fetch.last_epoch) if fetch.ahead is None else fetch.ahead
    if (fetch.leader_epoch, *asked) != (position.leader_epoch, position.log_end, last_epoch(position)):
        return None
    if fetch.ahead is not None and not isinstance(answer, Send):
        return None
    match answer:
        case Refusal.UNKNOWN_LEADER_EPOCH:
            return AskLater()
        case Refusal():
            return AskStore()
        case OutOfRange():
            return _out_of_range(position, answer)
        case Diverging(ends):
            return _truncate(position, truncation_point(position, ends.epoch, ends.end_offset))
        case Send():
            return Append(answer.high_watermark, answer.log_start)


def truncation_point(position: FollowerPosition, epoch: int, end_offset: int) -> int:
    """Where to cut when the leader's log has this epoch end there (KIP-279).

    1. That epoch is known here: at the earlier of the two ends. 2. It is not: at the end of the nearest one below,
    and the next fetch will ask about that. 3. Nothing is known below it: everything goes.
    """
    own = end_offset_for(position.epochs, epoch, position.log_end)
    if own is None:
        return min(end_offset, position.log_end)
    if own.epoch != epoch:
        return min(own.end_offset, position.log_end)
    return min(own.end_offset, end_offset, position.log_end)


def follower_watermark(own: int, leaders: int, log_end: int) -> int:
    """What a follower may show: what the leader says, as far as it has come itself, and never back."""
    return max(own, min(leaders, log_end))


def _out_of_range(position: FollowerPosition, answer: OutOfRange) -> FollowerEffect:
    """What to do without a place where the logs part.

    1. Our last record is of a later epoch than this leader's: the coordination store was set back; touch nothing.
    2. The leader's log is shorter: so is ours, then. 3. It begins behind our end, ends before what our disk has, or
    knows too little of its beginning to compare: begin where it does. Nothing that was promised hangs on what this
    forgets: what lies below its first local record is in the tiered store or deleted, and what it cannot compare with
    lies there too.
    """
    if (last_epoch(position) or 0) > position.leader_epoch:
        return AskLater()
    if position.local_log_start <= answer.log_end < position.log_end:
        return _truncate(position, answer.log_end)
    return Restart(answer.local_log_start, answer.log_start)


def _truncate(position: FollowerPosition, to: int) -> FollowerEffect:
    if to < position.local_log_start:
        # Only after an unclean election. From the log's start on: what lies between is the leader's to send, or to tell
        # of, which it does for the place where its own disk begins and for no other.
        begin = min(to, position.log_start)
        return Restart(begin, begin)
    return Truncate(to, is_below_watermark=to < position.high_watermark)
