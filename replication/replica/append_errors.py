"""The errors of rejected appends and of failed acknowledgements. replication/errors.py has their classes."""

from __future__ import annotations

from engine.errors import AckTimeout, EngineError
from replication.cores.leader import Leader
from replication.cores.progress import AckVerdict
from replication.cores.role import Follow, Lead, Role
from replication.errors import (
    MAYBE_STORED,
    LeadershipLost,
    NoLeader,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
)


def not_leading(name: str, role: Role, *, is_known: bool) -> EngineError:
    """Returns the error of a replica that does not lead: another node leads, this one does not yet, or none does."""
    if isinstance(role, Follow):
        return NotLeader(f"{name}: node {role.leader} leads", leader=role.leader)
    if isinstance(role, Lead) or not is_known:
        return NotLeader(f"{name}: this node is becoming the leader")
    return NoLeader(f"{name}: the partition has no leader")


def in_doubt(name: str) -> EngineError:
    text = f"{name}: the node has no contact with the coordination store, and another node may lead"
    return NotLeader(text, hint="retry, or use acks=all")


def without_contact(name: str) -> EngineError:
    text = f"{name}: the coordination store has not confirmed that this node still leads"
    return NotLeader(text, hint="retry")


def too_few_in_sync(name: str, in_sync: list[int], core: Leader) -> EngineError:
    text = f"{name}: {len(in_sync)} replicas are in sync, min_insync_replicas asks for {core.min_in_sync}"
    return NotEnoughReplicas(text)


def leadership_lost(name: str) -> EngineError:
    return LeadershipLost(f"{name}: leadership moved before the acknowledgement", hint=MAYBE_STORED)


def too_few_after_append(name: str, core: Leader) -> EngineError:
    text = f"{name}: since the append fewer than {core.min_in_sync} replicas are in sync"
    return NotEnoughReplicasAfterAppend(text, hint=MAYBE_STORED)


def check_acknowledged(name: str, core: Leader, end: int) -> None:
    """Checks that enough replicas are left to acknowledge. Raises NotEnoughReplicasAfterAppend."""
    if core.ack_verdict(end) is AckVerdict.TOO_FEW_AFTER_APPEND:
        raise too_few_after_append(name, core)


def ack_timeout(name: str, acks: str, timeout_ms: int) -> EngineError:
    return AckTimeout(f"{name}: acks={acks} was not reached within {timeout_ms} ms", hint=MAYBE_STORED)
