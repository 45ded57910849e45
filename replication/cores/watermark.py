"""The rule of the high watermark, and the verdicts that acks take from it.

Everything below the high watermark is on every replica that may ever lead without an unclean election.
Pure functions. Kafka's maybeIncrementLeaderHW and checkEnoughReplicasReachOffset, with KIP-966's strict minimum.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


def high_watermark(current: int, own_end: int, other_ends: Iterable[int], in_sync: int, min_in_sync: int) -> int:
    """The least end of all that count, but never back; it stands still while too few are in sync."""
    if in_sync < min_in_sync:
        return current
    return max(current, min([own_end, *other_ends]))


class AckVerdict(Enum):
    WAITING = "waiting"
    COMMITTED = "committed"
    TOO_FEW_AFTER_APPEND = "not_enough_replicas_after_append"  # it may yet be committed


def ack_verdict(end: int, watermark: int, in_sync: int, min_in_sync: int) -> AckVerdict:
    """What a produce with acks=all whose records end here is answered, as long as its leader leads."""
    if watermark < end:
        return AckVerdict.WAITING
    return AckVerdict.COMMITTED if in_sync >= min_in_sync else AckVerdict.TOO_FEW_AFTER_APPEND
