"""Short constructors of states and registrations for tests of the cores."""

from replication.cores.partition_state import Member, PartitionState, Registration, TopicRules, VersionedState

RULES = TopicRules()
OS = TopicRules(is_fsync_demanded=False)


def alive(*nodes: int, **others: Registration) -> dict[int, Registration]:
    """Return registrations of these nodes; each broker epoch equals the node's number."""
    return {node: Registration(node, 0) for node in nodes}


def members(*nodes: int) -> tuple[Member, ...]:
    return tuple(Member(node, node) for node in nodes)


def state(leader: int | None = 1, in_sync=(1, 2, 3), eligible=(), replicas=(1, 2, 3), epoch=1, **others):
    return PartitionState(
        tuple(replicas),
        Member(leader, leader) if leader is not None else None,
        epoch,
        members(*in_sync),
        members(*eligible),
        **others,
    )


def versioned(found: PartitionState, version: int = 0) -> VersionedState:
    return VersionedState(found, version)
