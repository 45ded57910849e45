"""Whether the coordination store that a node finds is that of its cluster: made once, not another one, not an old one.

A wiped store is not made anew by a node that has data, and one that was restored from old data is refused: epochs that
have been would be given out again, and two leaders of one epoch is what every rule of replication leans on never being.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from engine.errors import StartRefused
from replication.cluster.keys import CLUSTER, PartitionKey
from replication.cluster.values import ClusterIdentity, identity_from_bytes, identity_to_bytes
from replication.cluster.view import ClusterView
from replication.coordination.interface import Conflict, Create, Session, Unsure, Versioned

ADOPTION_S = 300.0  # a directory is made known in a second or two, once its shards have opened it: they may recover it

log = logging.getLogger("penstock.cluster")


async def joined(session: Session, new_id: Callable[[], str], wanted_id: str, directory_id: str) -> ClusterIdentity:
    """Which cluster this is; the first node makes it. Raises StartRefused."""
    while (found := await session.get(CLUSTER)) is None or is_claimed(found):
        if found is not None:
            await _until_adopted(session, found)
            continue
        if directory_id:
            raise StartRefused(
                f"the data directory belongs to cluster {directory_id}, and the coordination store holds none",
                hint="the store was wiped, or --coordination names another one than before",
            )
        made = ClusterIdentity(wanted_id or new_id(), new_id() + new_id())
        try:
            await session.commit(Create(CLUSTER, identity_to_bytes(made)))
        except (Conflict, Unsure):
            continue  # it shows in what is there now
    identity = identity_from_bytes(CLUSTER, found.value)
    if wanted_id not in ("", identity.cluster_id):
        raise StartRefused(
            f"the coordination store is that of cluster {identity.cluster_id}, not {wanted_id}",
            hint="check --coordination and cluster_id",
        )
    return identity


def is_claimed(found: Versioned) -> bool:
    return identity_from_bytes(CLUSTER, found.value).is_claimed


async def _until_adopted(session: Session, found: Versioned) -> None:
    """Raises StartRefused."""
    cluster_id = identity_from_bytes(CLUSTER, found.value).cluster_id
    log.warning("waiting for the node that brings its topics into this cluster", extra={"cluster_id": cluster_id})
    try:
        async with asyncio.timeout(ADOPTION_S):
            await session.wait_for_change(CLUSTER, found)
    except TimeoutError:
        raise StartRefused(
            f"cluster {cluster_id} is being made of the data directory of a node that was alone, and has not been",
            hint=f"start that node: it goes on where it was; if it has gone elsewhere, delete {CLUSTER} in ZooKeeper",
        ) from None


async def found_again(session: Session, known: ClusterIdentity | None) -> ClusterIdentity:
    """The cluster that was joined, in a new session. Raises StartRefused."""
    found = await session.get(CLUSTER)
    identity = None if found is None else identity_from_bytes(CLUSTER, found.value)
    if identity is None or (known is not None and identity != known):
        raise StartRefused("the coordination store is not the one that this node has joined", hint="was it wiped?")
    return identity


def check_not_older(view: ClusterView, local_epochs: Mapping[PartitionKey, int]) -> None:
    """A store that was restored from old data would elect again in epochs that have been. Raises StartRefused.

    `local_epochs`: of partitions on this node's disk, the greatest leader epoch that their logs know.
    """
    for (topic_id, number), epoch in local_epochs.items():
        found = view.states.get((topic_id, number))
        topic = view.topic_by_id(topic_id)
        if found is not None and topic is not None and found.state.leader_epoch < epoch:
            raise StartRefused(
                f"the coordination store knows leader epoch {found.state.leader_epoch} of {topic.name}/{number}, and "
                f"this node's log is of epoch {epoch}: the store was restored from old data",
                hint="restore the store's newest data, or look at another one with --coordination",
            )
