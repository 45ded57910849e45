"""Makes the leader core of a replica from its log at the start of the leadership.

replica.py decides which epoch starts, and whether that still counts.
"""

from __future__ import annotations

from engine.log.epochs import EpochStart
from engine.log.log import Log
from engine.partition.partition import Partition
from replication.cores.leader import Leader
from replication.cores.partition_state import Member, PartitionState, TopicRules, VersionedState

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


def standalone_state(own: Member, log: Log) -> VersionedState:
    """Return the constant state of an only replica."""
    return VersionedState(PartitionState((own.node_id,), own, log.leader_epoch, (own,)), 0)


def standalone_epochs(log: Log) -> list[EpochStart]:
    """Return the epochs of a log that continues in its own epoch."""
    epochs = [one for one in log.epochs if one.epoch < log.leader_epoch]
    return [*epochs, EpochStart(log.leader_epoch, log.epochs[-1].start_offset if log.epochs else 0)]
