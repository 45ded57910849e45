"""Decides which sealed segments go to the store next. Pure: no store, no disk, no clock.

The basic rule: the store's offsets have no gap. So a segment that cannot be appended exactly at the manifest's end
stops tiering with a reason for the operator, and is never skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.tiering.shipping.local_log import LocalLog, SealedSegment


class Halt(Enum):
    """Why shipping has stopped until an operator acts. The value is the advice."""

    GAP = "the local log begins after the end of the store: restore the missing range from a replica"
    STORE_AHEAD = "the store has offsets that the local log does not have: this disk lost data or has another log"
    DIVERGED = (
        "the store and the log have different records there: an unclean leader election dropped those in the store"
    )
    LOCAL_GAP = "two sealed segments are not contiguous: restore the partition from a replica"


@dataclass(frozen=True, slots=True)
class Upload:
    """Ship a segment from `from_offset` on: its base, or the manifest's end if that is inside the segment."""

    segment: SealedSegment
    from_offset: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Uploads in the order in which they must be committed; then, perhaps, a halt, whose `reason` has the numbers."""

    uploads: tuple[Upload, ...]
    halt: Halt | None = None
    reason: str = ""

    @property
    def pending_bytes(self) -> int:
        return sum(upload.segment.size_bytes for upload in self.uploads)


def plan_uploads(tiered_end: int, local: LocalLog, tiered_epoch: int | None = None) -> Plan:
    """Plan the uploads, given the end of the manifest and the epoch of its last record. In the order of the branches:

    1. the store is ahead of the log: halt, or the log would give the same offsets to other records;
    2. the log has the store's last record from another leader: halt, the two have diverged before it;
    3. this disk begins after the end of the store and log_start: halt;
    4. a segment is in the store or below log_start: skip it;
    5. a segment is not wholly committed and durable: stop, the rest follows later;
    6. a segment does not join the one before: halt;
    7. otherwise ship it, from the end reached so far on.
    """
    if tiered_end > local.log_end:
        return _halted([], Halt.STORE_AHEAD, f"the store ends at {tiered_end}, the log at {local.log_end}")
    if not has_same_history(tiered_end, tiered_epoch, local):
        numbers = f"the record before {tiered_end} is of epoch {tiered_epoch} in the store"
        return _halted([], Halt.DIVERGED, f"{numbers}, of {local.epoch_before(tiered_end)} in the log")
    end = max(tiered_end, local.log_start)
    if local.local_log_start > end:
        return _halted([], Halt.GAP, f"the store ends at {end}, the local log begins at {local.local_log_start}")
    limit = min(local.high_watermark, local.durable_end)
    uploads: list[Upload] = []
    for segment in local.sealed:
        if segment.end_offset <= end:
            continue
        if segment.end_offset > limit:
            break
        if segment.base_offset > end:
            return _halted(uploads, Halt.LOCAL_GAP, f"a segment begins at {segment.base_offset}, {end} was expected")
        uploads.append(Upload(segment, end))
        end = segment.end_offset
    return Plan(tuple(uploads))


def has_same_history(tiered_end: int, tiered_epoch: int | None, local: LocalLog) -> bool:
    """True if the log had the store's last record from the same leader, as far as this disk knows.

    If so, it has everything before it from the same leaders too.
    """
    own_epoch = local.epoch_before(tiered_end)
    return tiered_epoch is None or own_epoch is None or own_epoch == tiered_epoch


def _halted(uploads: list[Upload], halt: Halt, numbers: str) -> Plan:
    return Plan(tuple(uploads), halt, f"{numbers}: {halt.value}")
