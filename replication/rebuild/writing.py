"""Writes a planned content into an empty coordination store.

As an import of a standalone directory does (replication/cluster/standalone_import.py): the cluster is created with a
mark that keeps nodes out, then everything is written, then the mark is removed. A repeated call after an interruption
continues. Never writes over a cluster that is finished, nor beside keys that another cluster may have left.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import StartRefused
from replication.cluster import producer_ids
from replication.cluster.keys import (
    CLUSTER,
    DELETED,
    NODES,
    STARTS,
    STATES,
    TOPICS,
    block_key,
    block_of,
    deleted_key,
    starts_key,
    topic_key,
)
from replication.cluster.standalone_import import StandaloneImport
from replication.cluster.start_counter import starts_to_bytes
from replication.cluster.values import block_to_bytes, identity_from_bytes, tombstone_to_bytes, topic_to_bytes
from replication.coordination.interface import Session
from replication.cores.partition_state import Member, PartitionState, VersionedState, sorted_members
from replication.rebuild.plan import Plan, PlannedPartition

HINT_NOT_EMPTY = "delete everything below the path of --coordination, or give another path; then repeat"


async def check_empty(session: Session, cluster_id: str) -> None:
    """Checks that a plan of this cluster may be written. Raises StartRefused."""
    if await session.children(NODES):
        raise StartRefused(
            "a node is registered in the coordination store", hint="stop every node of the cluster first"
        )
    cluster = await session.get(CLUSTER)
    if cluster is not None:
        identity = identity_from_bytes(CLUSTER, cluster.value)
        if (identity.cluster_id, identity.is_claimed, identity.is_rebuilt) != (cluster_id, True, True):
            text = f"the coordination store has cluster {identity.cluster_id}: nothing is written over it"
            raise StartRefused(text, hint=HINT_NOT_EMPTY)
        return  # an interrupted rebuild
    for parent in (TOPICS, STATES, DELETED, STARTS):
        if await session.children(parent):
            raise StartRefused(f"the coordination store has {parent} and no cluster", hint=HINT_NOT_EMPTY)


async def write_plan(session: Session, plan: Plan, new_id: Callable[[], str], now_ms: int) -> None:
    """Creates the cluster with this content. Raises StartRefused, SessionLost."""
    assert not plan.questions
    await check_empty(session, plan.cluster_id)
    importing = StandaloneImport(session, plan.cluster_id, is_rebuilt=True)
    await importing.claim(new_id)
    keys = _keys(plan, importing.broker_epoch, now_ms)
    left = await session.get(producer_ids.KEY)
    end = max(plan.producer_ids_end, 0 if left is None else int(left.value))
    await importing.write_keys({**keys, producer_ids.KEY: str(end).encode()}, (TOPICS, STATES, DELETED, STARTS))
    await importing.finish()


def _keys(plan: Plan, broker_epoch: int, now_ms: int) -> dict[str, bytes]:
    """The states first and the topics last, as a creation writes them."""
    keys = {starts_key(node): starts_to_bytes(starts) for node, starts in plan.starts.items()}
    keys |= {deleted_key(topic_id): tombstone_to_bytes(name, now_ms) for topic_id, name in plan.deleted.items()}
    for topic in plan.topics:
        blocks: dict[str, dict[int, VersionedState]] = {}
        for partition in topic.partitions:
            block = blocks.setdefault(block_of(topic.entry.topic_id, partition.number), {})
            block[partition.number] = VersionedState(_state(partition, broker_epoch), 0)
        keys |= {block_key(block): block_to_bytes(states) for block, states in blocks.items()}
    return keys | {topic_key(topic.entry.name): topic_to_bytes(topic.entry) for topic in plan.topics}


def _state(planned: PlannedPartition, broker_epoch: int) -> PartitionState:
    """No leader: the controller elects one of the in-sync replicas, cleanly.

    After an accepted loss the next epoch is that of an unclean election: replicas may drop what the leader lacks.
    """
    return PartitionState(
        planned.replicas,
        None,
        planned.leader_epoch,
        sorted_members(Member(node, broker_epoch) for node in planned.in_sync),
        unclean_elections=int(planned.is_unclean),
        unclean_epoch=planned.leader_epoch + 1 if planned.is_unclean else 0,
    )
