"""What a follower asks its leader and what it may be answered: the values of the replica fetch protocol.

Values only; the leader and follower cores decide. The order of the refusals is engine.md 1.11's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from engine.log.epochs import EpochEnd


class BatchesEnd(NamedTuple):
    """Where batches end: the offset behind them, and the epoch of the last one. Both together say what lies before."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FollowerFetch:
    """One partition of one fetch. `log_end` asks for what comes next and acknowledges all before it.

    `ahead` asks for what comes behind an answer that is not written yet. It acknowledges nothing.
    """

    node_id: int
    incarnation: int
    leader_epoch: int
    log_end: int
    durable_end: int
    last_epoch: int | None  # of the last record; None when there is none
    high_watermark: int = 0
    ahead: BatchesEnd | None = None

    @property
    def wanted(self) -> int:
        """What the answer's batches are to begin with."""
        return self.log_end if self.ahead is None else self.ahead.offset


class Refusal(Enum):
    """Why a leader answers nothing. The value is the code on the wire."""

    NOT_LEADER = "not_leader"
    FENCED_LEADER_EPOCH = "fenced_leader_epoch"
    UNKNOWN_LEADER_EPOCH = "unknown_leader_epoch"
    UNKNOWN_REPLICA = "unknown_replica"


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The follower's end is not within what the leader has on its disk, or cannot be compared with it.

    Records from log_start on that lie below local_log_start are in the tiered store only.
    """

    local_log_start: int
    log_end: int
    log_start: int


@dataclass(frozen=True, slots=True)
class Diverging:
    """The follower's last epoch ended elsewhere here: cut back and ask again."""

    ends: EpochEnd


@dataclass(frozen=True, slots=True)
class Send:
    """Send batches from what the follower wants on, up to the leader's log_end, with these bounds."""

    from_offset: int
    high_watermark: int
    log_start: int


FetchAnswer = Refusal | OutOfRange | Diverging | Send
