"""The values of the replica fetch protocol: the fetch of one partition, and the answers to it.

Values only; the leader and follower cores decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from engine.log.epochs import EpochEnd


class BatchesEnd(NamedTuple):
    """Where batches end: the offset after them and the epoch of the last one. The pair identifies all records before
    it.
    """

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FollowerFetch:
    """The fetch of one partition. `log_end` is the fetch offset and acknowledges every record before it.

    `ahead`, the end of an answer that is still being written, replaces it as the fetch offset and acknowledges nothing.
    """

    node_id: int
    broker_epoch: int
    leader_epoch: int
    log_end: int
    durable_end: int
    last_epoch: int | None  # of the last record; None for an empty log
    high_watermark: int = 0
    ahead: BatchesEnd | None = None
    compacted_end: int = 0  # every key below has one record in the follower's log

    @property
    def wanted(self) -> int:
        """The fetch offset."""
        return self.log_end if self.ahead is None else self.ahead.offset


class FetchError(Enum):
    """Why a leader rejects a fetch. The value is the code on the wire."""

    NOT_LEADER = "not_leader"
    FENCED_LEADER_EPOCH = "fenced_leader_epoch"
    UNKNOWN_LEADER_EPOCH = "unknown_leader_epoch"
    UNKNOWN_REPLICA = "unknown_replica"


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The follower's log end is outside of the leader's local log, or cannot be compared with it.

    Records between log_start and local_log_start are in the tiered store only.
    """

    local_log_start: int
    log_end: int
    log_start: int


@dataclass(frozen=True, slots=True)
class Diverging:
    """The follower's last epoch ends at another offset here: truncate and fetch again."""

    ends: EpochEnd


@dataclass(frozen=True, slots=True)
class Send:
    """Send batches from the fetch offset to the leader's log_end, with these positions."""

    from_offset: int
    high_watermark: int
    log_start: int
    compacted_by_all: int = 0  # every replica is compacted below


FetchAnswer = FetchError | OutOfRange | Diverging | Send
