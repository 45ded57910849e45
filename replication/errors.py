"""The kinds of failure that come of there being several nodes, and what a caller does about each.

As in engine/errors.py, whose root is theirs: `no_side_effects` is promised only by what is raised before a batch is
queued at a leader. What is raised after that is indeterminate: the records may be committed yet, or by another leader.
"""

from __future__ import annotations

from engine.errors import EngineError


class NotLeader(EngineError):
    """This node does not lead the partition (any more, or yet). Ask the leader; nothing was done."""

    code = "not_leader"
    retryable = True


class NoLeader(EngineError):
    """Nobody leads the partition now. Retry: one is elected as soon as a replica that may lead is there."""

    code = "no_leader"
    retryable = True


class NoOtherNode(EngineError):
    """Another node would have to take over what this one has, and there is none. Start one, or leave it as it is."""

    code = "no_other_node"


class NodesAbsent(EngineError):
    """Fewer nodes are alive than a topic has replicas, and dead ones would be enough. Retry once they are back."""

    code = "too_few_nodes"
    retryable = True


class LeadershipLost(EngineError):
    """Leadership moved while the acknowledgement was waited for. The new leader may have the records or not."""

    code = "leadership_lost"
    retryable = True
    no_side_effects = False


class NotEnoughReplicas(EngineError):
    """Fewer replicas are in sync than min_insync_replicas demands, so nothing was appended. Retry, or use acks=1."""

    code = "not_enough_replicas"
    retryable = True


class NotEnoughReplicasAfterAppend(EngineError):
    """Replicas left the in-sync set while the acknowledgement was waited for. The records are there, not yet safe."""

    code = "not_enough_replicas_after_append"
    retryable = True
    no_side_effects = False


class OffsetNotAvailable(EngineError):
    """A new leader does not know yet how much was committed before it (KIP-207). Retry after a moment."""

    code = "offset_not_available"
    retryable = True
