"""Makes the leader core of a replica from its log at the start of the leadership.

replica.py decides which epoch starts, and whether that still counts.
"""

from __future__ import annotations

from engine.log.epochs import EpochStart
from engine.partition.partition import Partition
from replication.cores.leader import Leader
from replication.cores.partition_state import Member, TopicRules, VersionedState

NO_ROOM_S = 1.0  # between two attempts on a full disk: as followers wait after an error, with few log lines


def leader_of(
    partition: Partition,
    key: str,
    own: Member,
    state: VersionedState,
    epochs: list[EpochStart],
    lag_s_max: float,
    now: float,
) -> Leader:
    return Leader(
        own,
        state,
        TopicRules.of(partition.settings),
        partition=key,
        lag_s_max=lag_s_max,
        log_start=partition.log.log_start,
        local_log_start=partition.log.local_log_start,
        log_end=partition.log_end,
        durable_end=partition.durable_end,
        watermark=partition.high_watermark,
        epochs=epochs,
        now=now,
    )
