"""The feature level of a cluster: what its nodes may write that nodes of an older version cannot read.

It is the format of the key /cluster, which every version checks before it joins. It is raised by a command, once all
nodes run a version that serves it, and never lowered. Until then each node can be replaced by its older version.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.errors import InvalidConfig, InvalidTopicName
from engine.format import paths
from engine.schemas.changes import SETTINGS
from replication.cluster.keys import CLUSTER, NODES, node_key
from replication.cluster.values import (
    LEVEL_MAX,
    ClusterIdentity,
    NodeInfo,
    identity_from_bytes,
    identity_to_bytes,
    node_from_bytes,
)
from replication.coordination.interface import Conflict, Put, Session

# A level allows to write these. A new row is a new LEVEL_MAX.
LEVELS = {
    1: "what version 0.1.0 reads",
    2: "topics with names of 201 to 249 characters or with a leading __, schemas and `trace_headers` of topics",
}
LONG_NAMES, LONG_NAME_CHARS = 2, 201
NEW_SETTINGS = 2, (*SETTINGS, "trace_headers")
assert max(LEVELS) == LEVEL_MAX


def level_of_topic(name: str) -> int:
    """Return the lowest level at which all nodes know such a topic."""
    is_new_name = len(name) >= LONG_NAME_CHARS or name.startswith("__")
    return LONG_NAMES if is_new_name and name not in paths.INTERNAL_TOPICS else 1


async def check_level_of_topic(session: Session, name: str, config: Mapping[str, object]) -> None:
    """Raises InvalidTopicName or InvalidConfig for a name or a setting that the cluster's level does not allow yet."""
    of_settings, names = NEW_SETTINGS
    given = [setting for setting in names if setting in config]
    needed = max(level_of_topic(name), of_settings if given else 1)
    if needed == 1:
        return
    level = (await _read_cluster(session)).level
    if level >= needed:
        return
    text = f"needs feature level {needed}, and the cluster has {level}"
    hint = f"upgrade all nodes, then penstock coordination feature-level --raise-to {needed}"
    if given:
        raise InvalidConfig(f"{given[0]} {text}", hint=hint, setting=given[0])
    raise InvalidTopicName(f"{name!r} {text}", hint=hint)


async def read_level(session: Session) -> tuple[ClusterIdentity, list[NodeInfo]]:
    """Return the cluster, which has the level, and its live nodes. Raises InvalidConfig, Corrupt."""
    return await _read_cluster(session), await _read_nodes(session)


async def raise_level(session: Session, level: int) -> list[NodeInfo]:
    """Raise the level; no-op if the cluster has it. Raises InvalidConfig, Corrupt.

    Returns nodes that do not serve it and registered at the same moment; they can join no more.
    """
    while (cluster := await session.get_latest(CLUSTER)) is not None:
        identity = identity_from_bytes(CLUSTER, cluster.value)
        _check_raise(identity.level, level, await _read_nodes(session))
        if identity.level == level:
            return []
        try:
            await session.commit(Put(CLUSTER, identity_to_bytes(identity.at_level(level)), cluster.version))
        except Conflict:
            continue
        return [node for node in await _read_nodes(session) if node.level < level]
    raise InvalidConfig("there is no cluster in this place of the coordination store", setting="coordination")


def _check_raise(present: int, level: int, nodes: list[NodeInfo]) -> None:
    if level < present:
        text = f"the cluster has feature level {present}, and a level is never lowered"
        raise InvalidConfig(text, hint="restore a backup into a new cluster of the older version", setting="raise_to")
    if level > LEVEL_MAX:
        text = f"feature level {level} does not exist in this version, which serves levels to {LEVEL_MAX}"
        raise InvalidConfig(text, hint="run the command of the newer version", setting="raise_to")
    older = ", ".join(f"node {node.node_id} ({node.version or 'unknown'})" for node in nodes if node.level < level)
    if older:
        text = f"feature level {level} is not served by {older}"
        raise InvalidConfig(text, hint="upgrade all nodes first", setting="raise_to")


async def _read_cluster(session: Session) -> ClusterIdentity:
    cluster = await session.get_latest(CLUSTER)
    if cluster is None:
        raise InvalidConfig("there is no cluster in this place of the coordination store", setting="coordination")
    return identity_from_bytes(CLUSTER, cluster.value)


async def _read_nodes(session: Session) -> list[NodeInfo]:
    found = []
    for name in await session.children(NODES):
        key = node_key(int(name))
        if (registration := await session.get_latest(key)) is not None:
            found.append(node_from_bytes(key, registration.value, registration.created))
    return sorted(found, key=lambda node: node.node_id)
