"""The errors of replication, and how a caller handles each.

As in engine/errors.py, which has their root: only an error raised before a batch is queued at a leader promises
`no_side_effects`. An error raised later is indeterminate: this or another leader may still commit the records.
"""

from __future__ import annotations

from engine.errors import EngineError, StorageFull

MAYBE_STORED = "the records may be committed; a retry without an Idempotency-Key or Producer-Seq may store them twice"


class NotLeader(EngineError):
    """This node does not lead the partition (any more, or yet). Ask the leader; nothing was done."""

    code = "not_leader"
    retryable = True


class NoLeader(EngineError):
    """The partition has no leader now. Retry: an eligible replica is elected as soon as one is alive."""

    code = "no_leader"
    retryable = True


class NoOtherNode(EngineError):
    """No other node can take over from this one. Start another node, or leave the cluster as it is."""

    code = "no_other_node"


class NodesAbsent(EngineError):
    """Too few nodes are alive for the replicas of a topic; with the dead ones there are enough. Retry later."""

    code = "too_few_nodes"
    retryable = True


class LeadershipLost(EngineError):
    """Leadership moved during the wait for the acknowledgement. The new leader may have the records or not."""

    code = "leadership_lost"
    retryable = True
    no_side_effects = False


class NotEnoughReplicas(EngineError):
    """Fewer replicas are in sync than min_insync_replicas, so nothing was appended. Retry, or use acks=1."""

    code = "not_enough_replicas"
    retryable = True


class NotEnoughReplicasAfterAppend(EngineError):
    """Replicas left the in-sync set during the wait for the acknowledgement. The records are stored, not yet safe."""

    code = "not_enough_replicas_after_append"
    retryable = True
    no_side_effects = False


class OffsetNotAvailable(EngineError):
    """A new leader does not know yet which records are committed (KIP-207). Retry after a moment."""

    code = "offset_not_available"
    retryable = True


class ChangeWaitsForRoom(StorageFull):
    """A topic has changed in the cluster, and this node's disk is too full to follow. It does once space is free."""

    no_side_effects = False
