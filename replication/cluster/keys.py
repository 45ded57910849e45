"""The keys of the coordination store, and the names of partitions in them. The values are in values.py.

/cluster                     the cluster's id, secret and feature level; created by the first node
/nodes/<node id>             a live node's registration; `created` is its broker epoch
/topics/<name>               a topic: its id, partitions, settings
/states/<topic id>.<block>   the states of 100 partitions: one watch and one write for all of them
/deleted/<topic id>          a tombstone: allows a node that was away to delete the topic's files
/tenants/<tenant>            the count of a tenant's topics and partitions
/drained/<node id>           a node that leads nothing and receives no replicas
/starts/<node id>            the start counters of a node's data directories; stays when the node leaves
/controller/holder, /epoch   the latch
"""

from __future__ import annotations

CLUSTER = "/cluster"
NODES = "/nodes"
TOPICS = "/topics"
STATES = "/states"
DELETED = "/deleted"
TENANTS = "/tenants"
DRAINED = "/drained"
STARTS = "/starts"
CONTROLLER = "/controller"
BLOCK_PARTITIONS = 100  # about 15 KiB of states: well below the value limit, and a failover takes tens of writes

PartitionKey = tuple[str, int]
"""Topic id and number."""


def node_key(node_id: int) -> str:
    return f"{NODES}/{node_id}"


def topic_key(name: str) -> str:
    return f"{TOPICS}/{name}"


def deleted_key(topic_id: str) -> str:
    return f"{DELETED}/{topic_id}"


def tenant_key(tenant: str) -> str:
    return f"{TENANTS}/{tenant}"


def drained_key(node_id: int) -> str:
    return f"{DRAINED}/{node_id}"


def starts_key(node_id: int) -> str:
    return f"{STARTS}/{node_id}"


def block_of(topic_id: str, number: int) -> str:
    """Returns the name, below /states, of the block with this partition's state."""
    return f"{topic_id}.{number // BLOCK_PARTITIONS}"


def block_key(block: str) -> str:
    return f"{STATES}/{block}"


def topic_id_of(block: str) -> str:
    return block.rpartition(".")[0]


def partition_name(topic_id: str, number: int) -> str:
    """Returns the partition's name in the cores, `topic id/number`."""
    return f"{topic_id}/{number}"


def partition_key(name: str) -> PartitionKey:
    topic_id, _, number = name.rpartition("/")
    return topic_id, int(number)
